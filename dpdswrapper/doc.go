// Package dpdswrapper attaches dynamic parameter constraints to watches (xRFC TP2). Acquire
// gives each target an xdsclient.Client over that of package xdsclient: the layers above watch
// resources by name, and the client below gets the constraints.
//
// It does not choose among variants (control planes and xdsclient do), and knows neither the
// wire nor the meaning of constraints (dynparam).
//
// # Where constraints come from
//
// For each type of resource, constraints are merged by key. Later ones of this list take
// precedence:
//
//  1. the node's metadata: node_metadata_constraints of the bootstrap;
//  2. dynamic_parameter_constraints of the bootstrap;
//  3. the program, at run time: SetConstraints;
//  4. the control plane: the DPDS resource of the authority.
//
// The first three are the client's own. They hold for all names, also old-style ones. The
// DPDS resource itself is requested without constraints: it depends on the client, not on
// the locator (TP2, "Non-Cacheability of DPDS").
//
// # DPDS
//
// Watches whose constraints depend on the same DPDS resource, or on none, form a scope. A
// scope watches its DPDS resource, which may be of another authority and server, while it
// has watches:
//
//	        the first answer, whatever it is:
//	        the waiting watches start
//	asking ──────────────────────────────────▶ answered
//	   │                                       │     ▲
//	   │ the last watch stops                  └─────┘ another answer:
//	   └──────────────▶ closed ◀───────────────┘       the types whose constraints
//	                                                   changed are moved
//
// The watches of the scope start with the first answer: the resource, or an error in its
// place, with which DPDS adds no constraints until it is available. An ambient error (gRFC
// A88) changes nothing. A resource that is withdrawn (deleted, or with fail_on_data_errors
// replaced by an invalid one) takes its constraints with it. xdsclient answers in bounded
// time, and so a scope does not wait forever.
//
// The log warns of constraints without effect: those for a server that does not support constraints, and those of the
// bootstrap for a type that is not of xDS. (Of a DPDS resource, xdsclient lists what is ignored.)
//
// # Moves
//
// When the constraints of a type change, each watch of the type is moved: a watch with the
// new constraints starts and the old one stops, all in one batch, before done is called on
// the answer that caused it. The layer above keeps the old resource until the new watch
// answers:
//
//   - with a resource, which replaces the old one;
//   - that it does not exist, or is not for this client (KindDoesNotExist, NOT_FOUND,
//     PERMISSION_DENIED): the old one is withdrawn. A server that is silent is only late
//     (xdsclient.KindTimeout);
//   - with another error, which is ambient: the old resource stays.
//
// A collection moves likewise. The layer above keeps the old members. Those of the new watch
// are added, or replace the same variants of the same names; when the new watch has reported
// all members of the server, the remaining old ones are removed.
//
// # Concurrency
//
// A wrapper has one mutex, which is held while the client below is called, but not while a
// watcher is. It has no goroutine. Calls of a watcher are serial, also while its watch moves: the client below
// calls all watchers from one goroutine.
// The done that it gets is that of the client below, which settles what a watch still owes
// when it stops, and so when it moves.
package dpdswrapper
