// Package bootstrap reads the gRPC xDS bootstrap: the JSON document that names the
// management servers and their credentials, identifies the client, and says how a target
// becomes the name of a Listener.
//
// The document comes from the file or text that the environment names (FromEnv) or from
// memory (Parse). It goes, as an immutable Config, to xdsclient, which dials the servers,
// and to the resolver, which names the resources. The format is gRPC's (gRFCs A27, A29, A30,
// A47, A53, A65, A71, A81, A87, A88, A97) plus the keys of TP2; docs/reference/bootstrap.md has all
// keys.
//
// The package opens no connection, starts no goroutine and reads no file but the bootstrap
// itself: credentials are built when a server is dialled, and read certificates and tokens
// when they are needed. Types of credentials and plugins for certificates are registered by
// init functions. What constraints mean is defined by xdsclient/dynparam. The file is not
// watched for changes.
//
// # Faults
//
// Unknown keys are ignored, as gRFC A27 asks. A known key with a value that is not allowed
// is an error, and Parse reports all of them together as a *Faults. Values from the
// configuration of credentials and certificate providers never appear in an error, as they
// may be secrets.
package bootstrap
