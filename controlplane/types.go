package controlplane

import (
	"github.com/dynxds/dynxds/internal/typeurl"
	"github.com/dynxds/dynxds/xdsclient/dynparam"
)

// hasWildcard says whether clients may subscribe to all resources of the type
// at once (Envoy, xDS protocol, "How the client specifies what resources to
// return"). They are the types whose SotW responses are complete, too.
func hasWildcard(typeURL string) bool {
	return typeURL == typeurl.Listener || typeURL == typeurl.Cluster
}

// pushRank orders the types within one push, make before break. What decides
// which variants a client asks for comes first of all.
func pushRank(typeURL string) int {
	switch typeURL {
	case dynparam.MapTypeURL:
		return -1
	case typeurl.Cluster:
		return 0
	case typeurl.Endpoints:
		return 1
	case typeurl.Listener:
		return 2
	case typeurl.RouteConfiguration:
		return 3
	default:
		return 4
	}
}
