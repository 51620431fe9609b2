// Package discoveryv3 is the xDS transport protocol as dynxds speaks it with
// servers that understand dynamic parameters: the messages of xRFC TP2 (the text
// of 2021-08), and twins of the published discovery messages
// (envoy/service/discovery/v3/discovery.proto) that carry them.
//
// A twin has every field of the published message under the number and with the
// encoding that it has there, so that a peer cannot tell one from the other.
// Where the two dialects use one number for different messages, the twin has
// TP2's:
//
//   - DiscoveryRequest 7, DeltaDiscoveryRequest 8 and 9: locators carry
//     constraints, not parameters;
//   - Resource 8: the parameters of the variant, not a ResourceName;
//   - ResourceName 2: TP2's constraints, not the ones published later. The text
//     has no ResourceName; on a stream with locators it names a subscription.
//
// So the twins are for streams whose client sends locators. On any other stream
// a server may use those numbers in the published sense.
//
// The names are our own, as a process cannot have two messages of one full name;
// neither they nor the name of a service here appear on the wire.
//
// The package has no logic. What constraints mean is in xdsclient/dynparam.
package discoveryv3
