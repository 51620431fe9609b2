// Package dynparam is what dynamic parameters mean (xRFC TP2, the text of
// 2021-08): the [Parameters] that tell the variants of an xDS resource from one
// another, and the [Constraints] with which a client chooses among them.
//
// Constraints come from four places: a control plane's DPDS resource
// ([ByTypeFromProto]), the bootstrap file ([ParseJSON]), the node's metadata
// ([FromNodeMetadata]) and the program itself ([New]). [Constraints.Merge] makes
// one value of them, which goes into the locator of a subscription. Parameters
// come with each resource. Client and control plane ask the same two questions of
// them: which variants belong to a subscription ([Constraints.Match]), and which
// of several is the preferred one ([Constraints.Choose]).
//
// Constraints, Parameters and ByType are immutable; any number of goroutines may
// use one. Their zero values are of use: no constraints match every variant, no
// parameters belong to a resource without variants.
//
// The package is not for talking to anyone: it knows no streams, no subscriptions
// and no cache, and it does not decide whose constraints win.
//
// # Canonical form
//
// A value is brought into canonical form when it is made: keys and constraints in
// order, each constraint once, ranges that overlap or touch joined. Two sets that
// differ in nothing else have the same [Constraints.Key], which serves as a key of
// caches and is, at the same time, the set as it goes on the wire.
//
// # Limits
//
// Whatever comes from a peer or a file is bounded by [MaxSize], [MaxKeys],
// [MaxTypes] and [MaxJSONSize]; what is larger is an error, as is everything else
// that is wrong, in one [Faults].
package dynparam
