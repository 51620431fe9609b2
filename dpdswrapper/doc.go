// Package dpdswrapper attaches dynamic parameter constraints to watches (xRFC
// TP2). Its Wrapper is an xdsclient.Client over another: the layers above watch
// resources by name as ever, and the one below is asked for the variants that are
// this client's. Neither knows of the other's half.
//
// It is not for choosing among variants (control planes and xdsclient do), nor for
// the wire, nor for what constraints mean (dynparam).
//
// # Where constraints come from
//
// For each type of resource, constraints are merged by key; of two on the same key
// the later of this list wins:
//
//  1. the node's metadata: node_metadata_constraints of the bootstrap;
//  2. dynamic_parameter_constraints of the bootstrap;
//  3. the program, at run time: SetConstraints;
//  4. the control plane: the DPDS resource of the authority.
//
// The first three are the client's own. They hold for all names, old-style ones
// too, since parameters do not depend on how resources are named. The DPDS
// resource itself is asked for without constraints: it depends on who asks, not
// on the locator (TP2, "Non-Cacheability of DPDS").
//
// # DPDS
//
// Watches whose constraints depend on the same DPDS resource, or on none, form a
// scope. A scope watches its DPDS resource, which may belong to another authority
// and come from another server, as long as something in it is watched:
//
//	        the first answer, whatever it is:
//	        the waiting watches start
//	asking ──────────────────────────────────▶ answered
//	   │                                       │     ▲
//	   │ the last watch stops                  └─────┘ another answer:
//	   └──────────────▶ closed ◀───────────────┘       the types whose constraints
//	                                                   changed are moved
//
// Until the first answer no watch of the scope goes out. An answer is the
// resource, or an error instead of it: then DPDS adds nothing, and what it says
// later moves the watches. An error beside the resource (gRFC A88, ambient error)
// changes nothing: its constraints stay. A resource that is withdrawn (deleted, or
// with fail_on_data_errors replaced by an invalid one) takes its constraints with
// it. The transport gives an answer in bounded time, so a scope does not wait for
// ever.
//
// Constraints that choose nothing are warned of in the log: those for what is the type of
// no resource (TP2's own text has two such names), and those for a server that does not
// take any.
//
// # Moves
//
// When the constraints of a type change, each watch of the type is moved: a watch
// with the new constraints starts and the one with the old ones stops, all in one
// batch, before done is called on the answer that caused it. The layer above keeps
// what it has, until the new watch answers:
//
//   - with a resource: that replaces the old one;
//   - that it does not exist, or is not for this client (KindDoesNotExist,
//     NOT_FOUND, PERMISSION_DENIED): the old one is withdrawn. A server that only
//     keeps silent says so by the resource timer (gRFC A57), unless it has
//     resource_timer_is_transient_error;
//   - with another error: an ambient one, and the old resource stays.
//
// A collection moves alike. The layer above keeps the members it has. Those that the
// new watch tells of come beside them, or in their place if they are the same variants
// of the same names; when it has told all that the server has, the others leave.
//
// # Concurrency
//
// A Wrapper has one mutex, which is held while the client below is called and
// never while a watcher is. It has no goroutine: it runs on those of its callers
// and of the client below. A watcher is called by one at a time, even while its
// watch moves. The done that it gets is that of the client below; what a watch
// owed there is settled when it stops, and so when it moves.
package dpdswrapper
