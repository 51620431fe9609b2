// Package bootstrap reads the gRPC xDS bootstrap: the JSON document that tells
// a client which management servers there are, how to reach them, who the
// client is, and how a target becomes the name of a Listener.
//
// The data comes from the file or text that the environment names (FromEnv) or
// from memory (Parse) and goes, as an immutable Config, to xdsclient, which
// dials the servers, and to the resolver, which names the resources. The format
// is gRPC's (gRFCs A27, A30, A47, A53, A65, A71, A81, A88) plus the keys of
// TP2; docs/bootstrap.md has the whole table.
//
// The package opens no connection, starts no goroutine and reads no file but
// the bootstrap itself: certificates are read when a connection is made, and
// what credentials need is built when a server is dialled. What constraints mean
// is for xdsclient/dynparam to say. The file is not watched for changes.
//
// # Faults
//
// Keys that are not known are ignored, as gRFC A27 asks. A known key with a
// value that is not allowed is a fault, and Parse reports all of them together
// as a *Faults. Values from the configuration of credentials and certificate
// providers never appear in a fault, as they may be secrets.
package bootstrap
