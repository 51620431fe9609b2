// Package dnsconfig gives gRPC channels a service config from DNS TXT records
// (gRFC A2, in its text of 2017-11-10).
//
// A service owner publishes a list of choices under "_grpc_config.NAME", each a
// service config with the criteria of the clients it is for. The package looks
// the list up, picks the choice that is this client's, and joins it to the
// addresses that gRPC's own "dns" resolver finds. Importing it is enough to
// dial
//
//	dnsconfig:///service.example.com:443
//	dnsconfig://resolver.example.com:53/service.example.com:443
//
// The pieces can be had by themselves: Find takes the attribute from TXT
// records, Parse makes a List of it, and List.Choose picks from that.
//
// It is not for xDS, of which it knows nothing, and not for resolving
// addresses. gRPC-Go's "dns" resolver reads these records too, by other rules:
// there, a faulty choice spoils the list, and the percentage is drawn again at
// every look-up.
package dnsconfig
