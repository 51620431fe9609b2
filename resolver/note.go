package resolver

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/dynxds/dynxds/internal/xdsresource"
	"github.com/dynxds/dynxds/xdsclient"
)

// ambient has the errors of a resource whose last version stays in use (gRFC A88). It
// is immutable.
type ambient struct {
	// lost: no management server is reachable. since is when that began.
	lost  *xdsclient.Error
	since time.Time
	// fault is anything else, such as a version that was NACKed.
	fault error
}

// with returns what there is after a further error. A server that is out of reach takes
// nothing back of what it said before; one that says something is in reach.
func (a *ambient) with(err error) *ambient {
	var e *xdsclient.Error
	switch lost := errors.As(err, &e) && e.Kind == xdsclient.KindUnreachable; {
	case !lost:
		return &ambient{fault: err}
	case a == nil:
		return &ambient{lost: e, since: e.Time()}
	case a.lost == nil:
		return &ambient{lost: e, since: e.Time(), fault: a.fault}
	default:
		return &ambient{lost: e, since: a.since, fault: a.fault}
	}
}

// notes words what is wrong with the resources that lead to one cluster, for the errors
// of RPCs that find no endpoint there (gRFC A88, resolution_note). Its methods may be
// called from anywhere.
type notes struct {
	graph   *graph
	cluster *watch[*xdsresource.Cluster]
	// endpoints is nil where the endpoints are not those of a ClusterLoadAssignment.
	endpoints atomic.Pointer[watch[*xdsresource.Endpoints]]
}

// maxFaultText bounds what is said of one resource.
const maxFaultText = 1 << 10

// String says which node the client is, which servers it has lost since when, and which
// newer versions of the resources are not in use and why.
func (n *notes) String() string {
	parts := []string{fmt.Sprintf("node id %q", n.graph.client.Bootstrap().Node.GetId())}
	for _, a := range n.ambient() {
		if a == nil {
			continue
		}
		if a.lost != nil {
			text := fmt.Sprintf("management server %s is unreachable since %s: %v", a.lost.Server, a.since.UTC().Format(time.RFC3339), a.lost.Err)
			if !slices.Contains(parts, text) {
				parts = append(parts, text)
			}
		}
		if a.fault != nil {
			parts = append(parts, shorten(a.fault.Error()))
		}
	}
	return strings.Join(parts, "; ")
}

// ambient returns the errors of each resource; nil where there is none.
func (n *notes) ambient() []*ambient {
	all := []*ambient{n.graph.lds.ambient.Load()}
	if routes := n.graph.routes.Load(); routes != nil {
		all = append(all, routes.ambient.Load())
	}
	all = append(all, n.cluster.ambient.Load())
	if endpoints := n.endpoints.Load(); endpoints != nil {
		all = append(all, endpoints.ambient.Load())
	}
	return all
}

// aggregateNotes are the notes of an aggregate cluster that has clusters under it. Theirs
// say the rest.
type aggregateNotes notes

// String returns why a newer version of the Cluster is not in use, or "".
func (n *aggregateNotes) String() string {
	if a := n.cluster.ambient.Load(); a != nil && a.fault != nil {
		return shorten(a.fault.Error())
	}
	return ""
}

func shorten(text string) string {
	if len(text) <= maxFaultText {
		return text
	}
	return strings.ToValidUTF8(text[:maxFaultText], "") + "…"
}
