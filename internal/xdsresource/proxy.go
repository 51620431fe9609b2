package xdsresource

import (
	"maps"
	"net/netip"
	"slices"

	corepb "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/dynxds/dynxds/internal/faults"
)

const (
	// proxyKey is the key of metadata under which a proxy is found (gRFC A86).
	proxyKey       = "envoy.http11_proxy_transport_socket.proxy_address"
	addressTypeURL = "type.googleapis.com/envoy.config.core.v3.Address"
)

// proxy returns the address of the proxy in the metadata of a locality or an endpoint, "" if
// there is none. An Address has to be valid under any key (gRFC A83, "xDS Cluster Metadata").
func (d *endpointDecoder) proxy(at *faults.Path, of interface{ GetMetadata() *corepb.Metadata }) string {
	metadata := of.GetMetadata().GetTypedFilterMetadata()
	if len(metadata) == 0 {
		return ""
	}
	proxy := ""
	for _, key := range slices.Sorted(maps.Keys(metadata)) {
		if metadata[key].GetTypeUrl() != addressTypeURL {
			continue // gRFC A86: it is as if the key were not there.
		}
		if address := d.metadataAddress(at.Field("metadata").Field("typed_filter_metadata").Key(key), metadata[key]); key == proxyKey {
			proxy = d.intern(address)
		}
	}
	return proxy
}

// metadataAddress returns "host:port", or "" after an error. The host has to be an IP address.
func (d *endpointDecoder) metadataAddress(at *faults.Path, packed *anypb.Any) string {
	pb := new(corepb.Address)
	if !d.unmarshal(at, packed, addressTypeURL, pb) {
		return ""
	}
	// The type of the cluster makes no difference to the address of a proxy.
	eds := endpointDecoder{validator: d.validator, kind: ClusterEDS}
	address := eds.socketAddress(at, pb)
	host := pb.GetSocketAddress().GetAddress()
	if _, err := netip.ParseAddr(host); address != "" && err != nil {
		d.fault(at.Field("socket_address").Field("address"), "%s is not an IP address", faults.Quote(host))
	}
	return address
}
