"""Numbered JSON documents, such as `_releases/000000012.json`.

A document is written as a whole, only if its name is new, and never changed. So taking the next
number is a compare-and-swap: a writer that decided on number 11 writes number 12, or learns that
another writer did. On a local disk, this happens under the lock of the folder: the lock of a file
cannot be lost, and a file gets its name at once. In an object store, the store refuses the second
write.

Later documents may be about it, with names such as `000000012-decided.json`.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import obstore
from obstore.exceptions import BaseError

from backfill_assets.errors import NOTHING_CHANGED, ServiceUnavailable, TableUnreadable
from backfill_assets.lake.broken_files import is_aside, refuse_broken
from backfill_assets.lake.locks import writing
from backfill_assets.lake.object_store import (
    STORE_REMEDY,
    listed_after,
    put_new,
    read_object,
    store_at,
    why,
)
from backfill_assets.lake.storage import FORM, FORM_MARK, Documents, at_once, refuse_other_form

_NAME = re.compile(r"(\d{9})-?(\w*)\.json")
# In an object store: a number that is not above the last one. Listings begin at it.
_KNOWN = "_known"
# A file that keeps all away from the folder while its lake is restored.
RESTORING = "_restoring"
_KNOWN_EVERY = 100


class Document(NamedTuple):
    """A document of a listing. `about` is "" for the document that took the number.

    `identity` differs if the folder was recreated. On a disk, it is the identity of the folder.
    """

    number: int
    about: str
    identity: str


def _name(number: int, about: str) -> str:
    return f"{number:09d}{about and '-'}{about}.json"


def _form_of(name: str) -> int:
    """The form of a folder with a file of this name. In form 0 it was a Delta table."""
    if name.startswith("_delta_log"):
        return 0
    return int(name.removeprefix(FORM_MARK)) if name.startswith(FORM_MARK) else FORM


@dataclass(frozen=True)
class NumberedDocuments:
    """The documents in the folder `name` of the lake at `root`."""

    root: str
    name: str

    @property
    def path(self) -> str:
        return f"{self.root}/{self.name}"

    @property
    def _is_local(self) -> bool:
        return "://" not in self.root

    def newest(self) -> Document | None:
        """The last document about the highest number; None if there is none."""
        known = int(self._read(_KNOWN) or 1)
        documents = self.listed(known - 1)
        return documents[-1] if documents else None

    def listed(self, after: int = 0) -> list[Document]:
        """The documents with higher numbers than `after`, in order, from one listing.

        Raises TableUnreadable if the folder is in another form or is being restored, and
        ServiceUnavailable if it cannot be read.
        """
        found = []
        try:
            for name, identity in self._names(after):
                refuse_other_form(self.path, _form_of(name))
                if name == RESTORING:
                    raise TableUnreadable(
                        f"{self.root} is being restored from a backup.",
                        unchanged=NOTHING_CHANGED,
                        next_step="If `backfill restore` was interrupted, type it again.",
                    )
                if match := _NAME.fullmatch(name):
                    found.append(Document(int(match[1]), match[2], identity))
        except FileNotFoundError:
            return []
        except (BaseError, OSError) as error:
            raise self._away(error) from None
        return sorted(document for document in found if document.number > after)

    def _names(self, after: int) -> Iterator[tuple[str, str]]:
        """The names and identities of files. In an object store, only names after a number."""
        if not self._is_local:
            # The listing begins after all names of this number.
            yield from listed_after(self.root, self.name, f"{after:09d}~" if after else "")
            return
        folder = Path(self.path)
        info = folder.stat()
        for path in folder.iterdir():
            yield path.name, f"{info.st_ino} {info.st_mtime_ns}"

    def read(self, documents: Iterable[Document]) -> list[bytes]:
        """The contents of listed documents."""
        return at_once(
            self.path, lambda found: self.get(found.number, found.about) or b"", documents
        )

    def get(self, number: int, about: str = "") -> bytes | None:
        """The contents of one document; None if there is none. Needs no listing."""
        return self._read(_name(number, about))

    def next_number(self, after: int) -> int:
        """The number of the next document. Numbers of documents in `_damaged` are left out."""
        number = after + 1
        while is_aside(self.root, self.name, f"{number:09d}"):
            number += 1
        return number

    def _read(self, name: str) -> bytes | None:
        try:
            if self._is_local:
                contents = Path(self.path, name).read_bytes()
                refuse_broken(Path(self.path, name), of=self.path)
                return contents
            found = read_object(store_at(self.path), name)
        except FileNotFoundError:
            return None
        except (BaseError, OSError) as error:
            raise self._away(error) from None
        return found.contents if found else None

    def add(self, number: int, contents: str, about: str = "") -> bool:
        """Write a document. Return False, and write nothing, if its name exists.

        Two writers of the same contents may both get True: they decided the same. Raises
        ServiceUnavailable if the document cannot be written.
        """
        name = _name(number, about)
        try:
            if not self._is_local:
                return self._put(number, contents.encode(), about)
            with writing(self.root, self.name):
                if Path(self.path, name).exists():
                    return False
                Documents(self.path).write(name, contents)
        except (BaseError, OSError) as error:
            raise ServiceUnavailable(
                f"{self.path}/{name} cannot be written: {why(error)}.",
                unchanged="Readers get the same release as before.",
                next_step="Make room or correct the permissions, then type the same again.",
            ) from error
        return True

    def _put(self, number: int, contents: bytes, about: str) -> bool:
        store = store_at(self.path)
        try:
            is_added = put_new(store, _name(number, about), contents) is not None
            if is_added and number % _KNOWN_EVERY == 0:
                obstore.put(store, _KNOWN, str(number).encode())
            return is_added
        except BaseError:
            # The document may have been written, and only the answer was an error.
            written = self.get(number, about)
            if written is None:
                raise
            return written == contents

    def _away(self, error: Exception) -> ServiceUnavailable:
        return ServiceUnavailable(
            f"{self.path} cannot be read: {why(error)}.",
            unchanged=NOTHING_CHANGED,
            next_step=STORE_REMEDY,
        )
