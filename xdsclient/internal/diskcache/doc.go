// Package diskcache keeps the resources that a program last used in a file, for a start without a
// control plane. Which resources these are, and when the file is written, the client decides. The package
// knows no types of resources.
//
// # Several processes
//
// All processes of a program write one file, always as a whole, and the last one counts. A process without
// a connection writes at most what it had heard before. So what a process starts
// with is the view that one process had, never a mixture of several:
//
//	9:00   processes 1 and 2 write the file; both have clusters a and b
//	10:00  process 2 loses its connection, and ends at 11:00
//	10:30  process 1 is told that b was deleted, and writes the file: a
//	11:30  process 3 reads the file
//
// # Format
//
// A line of text, Magic; then protobuf messages, each behind its length as a varint; then the
// SHA-256 of all that. The first message is the header, the others are records:
//
//	message Header {
//	  string program = 1;        // the fingerprint of the program and its bootstrap
//	  int64 secured_since = 2;   // when the last resource came that asks for security, see secured.go
//	}
//	message Record {
//	  string type_url = 1;
//	  string name = 2;           // what was subscribed to: a resource, or a collection
//	  bytes constraints = 3;     // envoy.service.discovery.v3.DynamicParameterConstraints
//	  string member = 4;         // the name of the member of that collection
//	  bytes parameters = 5;      // those of the member
//	  string server = 6;         // server_uri
//	  int64 time = 7;            // when the resource was last known to be current, in nanoseconds since 1970
//	  bool refused = 8;          // the server does not have it for these constraints
//	  bool versioned = 9;        // the version is the resource's own
//	  bytes resource = 10;       // envoy.service.discovery.v3.Resource
//	  bool secured = 11;         // connections need security because of it
//	}
package diskcache
