"""The principals that may sign in: a copy in memory that follows the store, and the changes of an admin.

Invariants: no request reads the store; what this process has written holds here before it is answered; a record never
goes back to an earlier revision (R48).
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from runtime.aio.scope import Scope
from runtime.aio.watch import Watch
from runtime.common.clock import Clock
from runtime.common.errors import (
    ConflictError,
    InvalidInputError,
    NotFoundError,
    UnauthenticatedError,
    UnavailableError,
)
from runtime.common.namespaces import ALL_NAMESPACES
from runtime.highavailability.principals import FollowedPrincipals, PrincipalStore, StoredPrincipal
from runtime.highavailability.records import PrincipalRecord, StoredToken
from runtime.security.principals import (
    Principal,
    Role,
    check_certificate_name,
    check_principal_name,
    check_rights,
    new_token,
    token_digest,
)

logger = logging.getLogger(__name__)

TOKENS_OF_ONE = 2
"""The one that is used and the one that follows it."""
PRINCIPALS_MAX = 10_000


@dataclass(frozen=True, slots=True)
class NewToken:
    """A token that was just made; the store has its digest only."""

    record: PrincipalRecord
    token: str


class PrincipalAdministration(Protocol):
    """What an admin may do: `Principals`."""

    def records(self) -> Sequence[PrincipalRecord]:
        """All of them, revoked ones too, by name."""

    def problems(self) -> Mapping[str, str]:
        """By name: why a record cannot be read. No request signs in by such a name."""

    async def create(self, name: str, role: Role, namespace: str, *, expires_millis: int) -> NewToken:
        """A principal with its first token. ConflictError when there is one of that name."""

    async def admit(self, name: str, role: Role, namespace: str, *, certificate: str) -> PrincipalRecord:
        """A principal that signs in by a client certificate of that name. ConflictError as above, or if one has it."""

    async def rotate(self, name: str, *, expires_millis: int) -> NewToken:
        """A further token for it: the one before goes on, earlier ones end. NotFoundError, ConflictError."""

    async def revoke(self, name: str) -> None:
        """End all its tokens, and what its certificate opens. Idempotent; NotFoundError."""

    async def forget(self, name: str) -> None:
        """Delete one that is revoked: JSON Web Tokens speak for that name again. NotFoundError, ConflictError."""


class Principals:
    """Implements `PrincipalAdministration`; `find` returns the principal of a token."""

    def __init__(self, store: PrincipalStore, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._stored: dict[str, StoredPrincipal] = {}
        self._tokens: dict[str, tuple[Principal, int]] = {}
        self._certificates: dict[str, dict[str, Principal]] = {}
        """By the name in the certificate, then by the name of the principal."""
        self._unheard: set[str] = set()
        """Names written or read by this process that the watch has not reported since: it may report older records."""
        self._forgotten: dict[str, int] = {}
        """Names that this process has deleted, with the revision: the watch may report earlier records still."""
        self._is_loaded = False
        self._lists_wanted: Watch[int] = Watch(0)
        self._lists_taken: Watch[int] = Watch(-1)

    async def run(self) -> None:
        """Follow the store. Eternal."""
        while True:
            number = self._lists_wanted.value
            async with Scope("principals") as scope:
                scope.spawn_eternal("follow", self._follow(number))
                _ = await self._lists_wanted.wait_until(number.__lt__)
                scope.cancel_all()

    async def _follow(self, number: int) -> None:
        """Follow the store from the `number`th list, which begins now."""
        async for found in self._store.follow():
            self._take(found)
            if self._lists_taken.value < number:
                self._lists_taken.set(number)

    async def catch_up(self) -> None:
        """Wait until this process knows every change that was answered before this call.

        A term begins with it: the leader before may have answered revokes that this process has not heard of.
        """
        number = self._lists_wanted.value + 1
        self._lists_wanted.set(number)
        _ = await self._lists_taken.wait_until(lambda taken: taken >= number)

    def find(self, token: str) -> Principal | None:
        """The principal of a token. Raises UnavailableError before the store was read."""
        self._check_loaded()
        found = self._tokens.get(token_digest(token))
        if found is None or (found[1] and self._clock.epoch_millis() >= found[1]):
            return None
        return found[0]

    def check_not_ended(self, token: str) -> None:
        """Raises UnauthenticatedError, with the name, for a token of a principal that has ended by the clock."""
        found = self._tokens.get(token_digest(token))
        if found is not None and found[1] and self._clock.epoch_millis() >= found[1]:
            name = found[0].name
            message = (
                f"the token of principal {name} has ended: an admin's `flinklike tokens rotate {name}` makes a new one"
            )
            raise UnauthenticatedError(message)

    def find_by_certificate(self, name: str) -> Principal | None:
        """The principal that signs in by a verified certificate of that name. Raises UnavailableError as `find`."""
        self._check_loaded()
        found = self._certificates.get(name, {})
        # Two admins may have given it to two principals at once: then neither signs in until one is revoked.
        return next(iter(found.values())) if len(found) == 1 else None

    def _check_loaded(self) -> None:
        if not self._is_loaded:
            message = "it is not known yet who may sign in: ask again"
            raise UnavailableError(message)

    def has(self, name: str) -> bool:
        """Is there one of that name, be it revoked or unreadable? Then no JSON Web Token speaks for it."""
        return name in self._stored

    def records(self) -> Sequence[PrincipalRecord]:
        """All of them, by name."""
        return [self._stored[name].record for name in sorted(self._stored)]

    def problems(self) -> Mapping[str, str]:
        """Those of records that cannot be read."""
        return {name: stored.problem for name, stored in self._stored.items() if stored.problem}

    async def create(self, name: str, role: Role, namespace: str, *, expires_millis: int) -> NewToken:
        """A principal with its first token; in place of one that was revoked, whose jobs it then has."""
        there = await self._place_for(name, role, namespace)
        return await self._issue(PrincipalRecord(name, role.text, namespace, ()), there, expires_millis)

    async def admit(self, name: str, role: Role, namespace: str, *, certificate: str) -> PrincipalRecord:
        """The same with a client certificate in place of a token."""
        check_certificate_name(certificate)
        there = await self._place_for(name, role, namespace)
        if others := self._certificates.get(certificate):
            message = f"principal {min(others)} signs in by the certificate {certificate!r}: revoke it first"
            raise ConflictError(message)
        record = PrincipalRecord(name, role.text, namespace, (), certificate)
        await self._write(record, there)
        return record

    async def _place_for(self, name: str, role: Role, namespace: str) -> StoredPrincipal | None:
        """What is to be replaced by a new principal, None for nothing. Raises ConflictError for one that lives."""
        check_principal_name(name)
        check_rights(role, namespace)
        there = await self._store.get(name)
        if there is not None and there.problem:
            raise _unreadable(there)
        if there is not None and not there.record.is_revoked:
            of_certificate = f"it signs in by the certificate {there.record.certificate!r}, which revoke ends"
            what_helps = "rotate gives it a new token, revoke ends all its tokens"
            message = (
                f"principal {name} exists ({there.record.role}, namespace {there.record.namespace}): "
                f"{of_certificate if there.record.certificate else what_helps}"
            )
            raise ConflictError(message)
        count = len(self._stored) - len(self.problems())
        if there is None and count >= PRINCIPALS_MAX:
            message = (
                f"there are {count} principals, the limit is {PRINCIPALS_MAX}, revoked ones too: "
                "`flinklike tokens forget <name>` deletes one that is revoked"
            )
            raise ConflictError(message)
        return there

    async def rotate(self, name: str, *, expires_millis: int) -> NewToken:
        """A further token; the one before goes on."""
        there = await self._there(name)
        if there.problem:
            raise _unreadable(there)
        if there.record.is_revoked:
            message = f"principal {name} is revoked: create it again"
            raise ConflictError(message)
        if there.record.certificate:
            message = (
                f"principal {name} signs in by the certificate {there.record.certificate!r} and has no token: have its "
                "CA issue a new one of the same name, or for tokens in its place revoke it and create it again without "
                "a certificate"
            )
            raise ConflictError(message)
        return await self._issue(there.record, there, expires_millis)

    async def revoke(self, name: str) -> None:
        """End all that signs in as it: here at once, on other JobManagers as soon as they hear of it (R34).

        One that cannot be read is replaced by a mark, so that the name stays shut out. One that somebody else has
        revoked is taken as it is there: this process may not have heard of that yet.
        """
        there = await self._there(name)
        if there.problem:
            await self._write(PrincipalRecord(name, Role.VIEWER.text, ALL_NAMESPACES, ()), there)
        elif not there.record.is_revoked:
            await self._write(replace(there.record, tokens=(), certificate=""), there)
        else:
            self._hold(name, there)

    async def forget(self, name: str) -> None:
        """Delete one that is revoked."""
        there = await self._there(name)
        if there.problem:
            raise _unreadable(there)
        if not there.record.is_revoked:
            message = f"principal {name} is not revoked: revoke it first"
            raise ConflictError(message)
        self._forgotten[name] = await self._store.delete(name, previous_revision=there.revision)
        if len(self._forgotten) > PRINCIPALS_MAX:
            del self._forgotten[next(iter(self._forgotten))]
        if (held := self._stored.get(name)) is not None and held.revision <= self._forgotten[name]:
            self._unheard.discard(name)
            self._drop(name)

    async def _there(self, name: str) -> StoredPrincipal:
        there = await self._store.get(check_principal_name(name))
        if there is None:
            message = f"principal {name} is not known"
            raise NotFoundError(message)
        return there

    async def _issue(self, record: PrincipalRecord, there: StoredPrincipal | None, expires_millis: int) -> NewToken:
        now = self._clock.epoch_millis()
        if expires_millis and expires_millis <= now:
            message = "the token would have ended already: name a later time"
            raise InvalidInputError(message)
        token = new_token()
        tokens = (StoredToken(token_digest(token), now, expires_millis), *record.tokens)[:TOKENS_OF_ONE]
        record = replace(record, tokens=tokens)
        await self._write(record, there)
        return NewToken(record, token)

    async def _write(self, record: PrincipalRecord, there: StoredPrincipal | None) -> None:
        written = await self._store.put(record, previous_revision=there.revision if there else 0)
        self._hold(record.name, written)

    def _hold(self, name: str, stored: StoredPrincipal) -> None:
        """Take a record of the store; older ones that the watch reports later do not replace it."""
        self._put(name, stored)
        if self._stored.get(name) is stored:
            self._unheard.add(name)

    def _take(self, found: FollowedPrincipals) -> None:
        heard = {name for name in self._unheard & found.keys() if found[name].revision >= self._stored[name].revision}
        # What a list of later does not have was deleted meanwhile, by another leader.
        gone = {name for name in self._unheard - found.keys() if self._stored[name].revision <= found.listed_revision}
        self._unheard -= heard | gone
        for name in self._stored.keys() - found.keys() - self._unheard:
            self._drop(name)  # deleted by hand
        for name, stored in found.items():
            self._put(name, stored)
        self._is_loaded = True

    def _put(self, name: str, stored: StoredPrincipal) -> None:
        there = self._stored.get(name)
        if there is not None and there.revision >= stored.revision:
            return
        if stored.revision <= self._forgotten.get(name, 0):
            return
        self._drop(name)
        self._stored[name] = stored
        if stored.problem:
            return
        record = stored.record
        try:
            principal = Principal(check_principal_name(name), Role.parse(record.role), record.namespace)
        except InvalidInputError as error:
            logger.warning("principal %s cannot sign in: %s", name, error)
            return
        for one in record.tokens:
            self._tokens[one.sha256] = (principal, one.expires_millis)
        if record.certificate:
            self._certificates.setdefault(record.certificate, {})[name] = replace(principal, via="certificate")

    def _drop(self, name: str) -> None:
        there = self._stored.pop(name, None)
        if there is None:
            return
        for one in there.record.tokens:
            self._tokens.pop(one.sha256, None)
        holders = self._certificates.get(there.record.certificate, {})
        holders.pop(name, None)
        if not holders:
            self._certificates.pop(there.record.certificate, None)


def _unreadable(there: StoredPrincipal) -> ConflictError:
    name = there.record.name
    return ConflictError(
        f"the record of principal {name} in etcd cannot be read: {there.problem}. `flinklike tokens revoke {name}` "
        "replaces it, and the name stays shut out; create gives it new rights then"
    )
