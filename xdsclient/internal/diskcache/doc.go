// Package diskcache keeps the resources that a program last used in a file, for a start without a
// control plane. Which resources these are, and when the file is written, the client decides. The package
// knows no types of resources.
//
// # Several processes
//
// A program has MaxSlots slots in a directory: files that are each written by one process, always as a whole.
// The process locks its slot (flock) and keeps it until it ends. A process that starts reads the slot that
// was written last, by whichever process, and writes the first slot that is free. A process without
// a connection writes at most what it had heard before. So what a process starts
// with is the view that one process had, never a mixture of several:
//
//	9:00   process 1 writes slot 0, process 2 writes slot 1; both have clusters a and b
//	10:00  process 2 loses its connection, and ends at 11:00
//	10:30  process 1 is told that b was deleted, and writes slot 0: a
//	11:30  process 3 reads slot 0, which was written last
//
// A slot whose process has ended is emptied by the first write of another process, and whenever something is
// refused. Where a platform or a file system has no locks, all processes write slot 0, each the whole file.
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
