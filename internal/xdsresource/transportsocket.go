package xdsresource

import (
	"slices"
	"strings"

	clusterpb "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corepb "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"

	"github.com/dynxds/dynxds/internal/faults"
)

// TransportSocket is the security that a Cluster asks for on the connections to its
// endpoints, where that is more than plaintext (gRFC A29; Cluster.transport_socket).
type TransportSocket struct {
	// Field is the field of the Cluster that asks for it: "transport_socket", or an
	// entry of "transport_socket_matches".
	Field string
	// Name is the name of the transport socket. It may be empty.
	Name string
	// TypeName is the message type of its typed_config; empty if it has none.
	TypeName string
}

// String says what is asked for, and where, for errors.
func (s *TransportSocket) String() string {
	text := s.Field + " " + faults.Quote(s.Name)
	if s.TypeName != "" {
		text += " (" + faults.Shorten(s.TypeName, faults.MaxQuoted) + ")"
	}
	return text
}

// AsksForSecurity reports whether a Cluster, which may be nil, has a transport socket that
// channels have to obey whose credentials leave their security to the control plane.
func (c *Cluster) AsksForSecurity() bool { return c != nil && c.TransportSocket != nil }

// transportSocket returns the first transport socket of a Cluster that is more than
// plaintext, or nil. This client does not match endpoints against
// transport_socket_matches, so each entry counts for all of them.
func transportSocket(pb *clusterpb.Cluster) *TransportSocket {
	if s := pb.GetTransportSocket(); s != nil && !isPlaintext(s) {
		return newTransportSocket(faults.Field("transport_socket"), s)
	}
	for i, match := range pb.GetTransportSocketMatches() {
		if s := match.GetTransportSocket(); !isPlaintext(s) {
			return newTransportSocket(faults.Item("transport_socket_matches", i), s)
		}
	}
	return nil
}

// asksForSecurity reports whether a field of the Cluster, "transport_socket" or
// "transport_socket_matches", asks for more than plaintext.
func asksForSecurity(pb *clusterpb.Cluster, field string) bool {
	if field == "transport_socket" {
		return !isPlaintext(pb.GetTransportSocket())
	}
	return slices.ContainsFunc(pb.GetTransportSocketMatches(), func(m *clusterpb.Cluster_TransportSocketMatch) bool {
		return !isPlaintext(m.GetTransportSocket())
	})
}

func newTransportSocket(at *faults.Path, s *corepb.TransportSocket) *TransportSocket {
	return &TransportSocket{Field: at.String(), Name: s.GetName(), TypeName: typeName(s)}
}

// The transport socket that is plaintext, by the type of its configuration and, if it
// has none, by its name.
const (
	rawBufferType = "envoy.extensions.transport_sockets.raw_buffer.v3.RawBuffer"
	rawBufferName = "envoy.transport_sockets.raw_buffer"
)

func isPlaintext(s *corepb.TransportSocket) bool {
	if s.GetTypedConfig() == nil {
		return s.GetName() == rawBufferName
	}
	return typeName(s) == rawBufferType
}

func typeName(s *corepb.TransportSocket) string {
	url := s.GetTypedConfig().GetTypeUrl()
	return url[strings.LastIndexByte(url, '/')+1:]
}
