"""The configuration: the only package that reads files and takes an environment.

`load_config` is its entry; `Config` is what the service is built from; `ConfigErrors` says all that is wrong at once.
"""

from cacheupdater.config.load import load_config
from cacheupdater.config.models import NamespaceSection, SourceSection
from cacheupdater.config.problems import ConfigErrors
from cacheupdater.config.settings import Config

__all__ = ["Config", "ConfigErrors", "NamespaceSection", "SourceSection", "load_config"]
