package resolver

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/dynxds/dynxds/internal/faults"
	"github.com/dynxds/dynxds/xdsclient"
)

// ambient has the errors of a resource whose last version stays in use (gRFC A88). It
// is immutable.
type ambient struct {
	lost  *xdsclient.Error // no management server is reachable
	since time.Time        // of lost
	fault error            // any other error, such as that of a NACKed version
}

// with adds an error. That a server is unreachable does not replace an older error; an error
// means that the server is reachable.
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

// notes describes the ambient errors of the resources that lead to a cluster, for the
// errors of RPCs that find no endpoint there (gRFC A88, resolution_note). Its methods take
// no lock.
type notes cluster

// maxFaultText bounds the error of one resource.
const maxFaultText = 1 << 10

// String names the node, the servers that are unreachable and since when, and the reasons
// why newer versions of the resources are not in use.
func (n *notes) String() string {
	parts := []string{fmt.Sprintf("node id %q", n.graph.client.Bootstrap().Node.GetId())}
	add := func(text string) {
		if !slices.Contains(parts, text) {
			parts = append(parts, text)
		}
	}
	for _, a := range []*ambient{n.graph.lds.errors(), n.graph.rds.Load().errors(), n.cds.errors(), n.eds.Load().errors()} {
		if a != nil && a.lost != nil {
			add(fmt.Sprintf("management server %s is unreachable since %s: %v", a.lost.Server, a.since.UTC().Format(time.RFC3339), a.lost.Err))
		}
		if a != nil && a.fault != nil {
			add(faults.Shorten(a.fault.Error(), maxFaultText))
		}
	}
	return strings.Join(parts, "; ")
}

// aggregateNotes are the notes of an aggregate cluster. Those of its clusters have the rest.
type aggregateNotes notes

// String returns the reason why a newer version of the Cluster is not in use, or "".
func (n *aggregateNotes) String() string {
	if a := n.cds.errors(); a != nil && a.fault != nil {
		return faults.Shorten(a.fault.Error(), maxFaultText)
	}
	return ""
}
