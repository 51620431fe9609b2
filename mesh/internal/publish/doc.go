// Package publish puts the content of a folder into the store of a control plane.
//
// A Publisher builds two meshes: one whose resources have plain names, for any gRPC client, and, if
// the control plane has an authority, one whose resources have names of xRFC TP1 under it, for clients
// that subscribe with dynamic parameter constraints (xRFC TP2), which they get by DPDS. The folder's
// xDS resources are added to them, or override resources of theirs.
//
// Invalid content changes nothing. Valid content is stored in one update, of the differences only.
package publish
