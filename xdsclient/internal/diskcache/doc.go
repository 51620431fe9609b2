// Package diskcache is a file with the resources that xDS clients of one bootstrap last used, for a
// start without a control plane. It reads, merges and replaces the file; what goes in, and when
// something is taken out, the client decides. It knows no types of resources.
//
// # Format
//
// A line of text, Magic; then protobuf messages, each behind its length as a varint; then the
// SHA-256 of all that. The first message is the header, the others are records:
//
//	message Header {
//	  string bootstrap = 1;      // the fingerprint of the bootstrap
//	  int64 written = 2;         // in nanoseconds since 1970
//	  int64 secured_since = 3;   // when the last resource came that asks for security, see secured.go
//	}
//	message Record {
//	  string type_url = 1;
//	  string name = 2;           // what was subscribed to: a resource, or a collection
//	  bytes constraints = 3;     // envoy.service.discovery.v3.DynamicParameterConstraints
//	  string member = 4;         // the name of the member of that collection
//	  bytes parameters = 5;      // those of the member
//	  string server = 6;         // server_uri
//	  int64 time = 7;            // when the resource was last known to be current
//	  bool refused = 8;          // the server does not have it, or not for this client
//	  bool versioned = 9;        // the version is the resource's own
//	  bytes resource = 10;       // envoy.service.discovery.v3.Resource
//	  bool secured = 11;         // connections need security because of it
//	}
//
// # Several processes
//
// A writer reads the file, merges what it has with it, the newer record of each key, and puts a new
// file in the place of the old one. So a reader sees one or the other. Writers hold a lock on the
// directory where the platform has one; elsewhere, or on a file system without locks, one of two
// that write at the same time may be lost until it writes again. Merging copies one record at a time, so
// that the memory for it does not grow with the file. A record that says that a resource
// was refused stays, so that a process that was not notified of it does not put the resource back.
package diskcache
