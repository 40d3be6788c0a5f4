"""The configuration: the only package that reads files and takes an environment.

`load_config` is its entry; `Config` is what the service is built from; `ConfigErrors` says all that is wrong at once.
"""

from cacheupdater.config.addresses import Address, MemoryAddress, TcpAddress, UnixAddress
from cacheupdater.config.load import load_config
from cacheupdater.config.problems import ConfigErrors, Problem
from cacheupdater.config.secrets import Url, redact
from cacheupdater.config.settings import (
    Config,
    Load,
    NamespaceConfig,
    PythonLoad,
    QueueConfig,
    QuotaConfig,
    SourceConfig,
    SqlLoad,
    TableLoad,
)

__all__ = [
    "Address",
    "Config",
    "ConfigErrors",
    "Load",
    "MemoryAddress",
    "NamespaceConfig",
    "Problem",
    "PythonLoad",
    "QueueConfig",
    "QuotaConfig",
    "SourceConfig",
    "SqlLoad",
    "TableLoad",
    "TcpAddress",
    "UnixAddress",
    "Url",
    "load_config",
    "redact",
]
