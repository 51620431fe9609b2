// Package dnsconfig gives gRPC channels a service config from DNS TXT records
// (gRFC A2, in its text of 2017-11-10).
//
// A service owner publishes a list of choices under "_grpc_config.NAME": service configs with
// the criteria of the clients that they are for. The package looks up the list, chooses the
// service config of this client, and joins it to the addresses of gRPC's own "dns" resolver.
// Importing it is enough to dial
//
//	dnsconfig:///service.example.com:443
//	dnsconfig://resolver.example.com:53/service.example.com:443
//
// Find, Parse and List.Choose are the steps by themselves: the attribute of TXT records, the
// list in it, and the choice.
//
// It does not depend on xDS and does not resolve addresses itself. gRPC-Go's "dns" resolver
// reads these records too, by other rules: there, a faulty choice voids the whole list, and
// the percentage is drawn again for each look-up.
package dnsconfig
