"""The operators, one class each, a file a family.  Importing this package registers them all."""

from alpenglow.base.modules import import_folders

import_folders(__name__)
