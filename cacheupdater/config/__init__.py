"""The configuration: the only package that reads files and takes an environment.

`load_config` makes a `Config`, from which the service is built. `ConfigErrors` names everything that is wrong at once.
"""

from cacheupdater.config.load import load_config
from cacheupdater.config.models import NamespaceSection, SourceSection
from cacheupdater.config.problems import ConfigErrors
from cacheupdater.config.settings import Config

__all__ = ["Config", "ConfigErrors", "NamespaceSection", "SourceSection", "load_config"]
