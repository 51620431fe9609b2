// Package dynparam has the dynamic parameters of xRFC TP2 (the text of 2021-08): the
// [Parameters] that distinguish the variants of an xDS resource, and the [Constraints] with
// which a client chooses among them.
//
// Constraints come from a control plane's DPDS resource ([ByTypeFromProto]), the
// bootstrap file ([Constraints.UnmarshalJSON]) or the program itself ([New], [Exact]).
// [Constraints.Merge] makes one value of them, which goes into the locator of a
// subscription. Parameters come with each resource. Client and control plane ask the same
// two questions: which variants belong to a subscription ([Constraints.Match]), and which
// of several is preferred ([Constraints.Choose]).
//
// Constraints, Parameters and ByType are immutable and safe for concurrent use. Their zero
// values are ready for use: no constraints, which match every variant, and no parameters,
// as a resource without variants has.
//
// The package knows no streams, subscriptions or cache, and does not decide whose constraints
// win.
//
// # Canonical form
//
// Values are always in canonical form: keys and constraints sorted, each constraint once,
// ranges that overlap or touch joined. Two sets that differ in nothing else have the same
// [Constraints.Key], which serves as the key of caches and is the set in wire form.
//
// # Limits
//
// One set of constraints or parameters has at most 128 keys and 64 KiB on the wire, or
// 1 MiB as JSON; a [ByType] has at most 128 types. What is larger is an error, as is
// everything else that is wrong, in one [Faults].
package dynparam
