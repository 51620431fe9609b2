// Package bounds is the home of limits on what a peer, a file or a user may make the process hold,
// do or log.
//
// Three things are here. [Text] makes a text of a peer fit for a log, an
// error, a page or a terminal. [ReadFile] reads a file of limited size. limits.go lists the limits
// themselves; docs/reference/bounds.md says to users what each costs at most, who pays when it is
// reached, and how it recovers.
//
// The package is not for limits that a specification or a service config sets (max_requests, retry
// buffers); these stay with the feature.
package bounds
