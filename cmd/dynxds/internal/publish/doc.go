// Package publish puts what a folder says into the store of a control plane.
//
// A Publisher builds two meshes from a folder's content: one whose resources have
// plain names, for any gRPC client, and, if the control plane has an authority, one
// whose resources have names of xRFC TP1 under it, for clients that subscribe with
// dynamic parameter constraints (xRFC TP2) and get these by DPDS. Resources that
// somebody wrote by hand stand beside them.
//
// Content that cannot be built changes nothing. What is built goes into the store
// in one update, and only what is different goes there at all.
package publish
