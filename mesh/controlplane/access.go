package controlplane

import (
	"context"
	"sync"
	"time"

	corepb "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/grpc/status"

	"github.com/dynxds/dynxds/mesh/internal/access"
)

// Access decides which client may subscribe to which names, and which node it may be, by the SPIFFE ID of its verified
// certificate. The zero value lets every client have everything, as any node. [ParseAccess] reads one.
//
// Without rules for nodes, a node is what the client says it is, verified or not: so is all that follows from it,
// [Options.NodeConstraints], [Tx.SetDPDS] and [Options.StoreFor]. With them, these get a node that the client's certificate
// allows, with the fields that the client left out. The constraints of a client that subscribes by locators stay
// what the client says: rules limit the names that it may have, not the variants.
type Access = access.Rules

// ParseAccess reads an Access from JSON: a list of rules, each with a SPIFFE ID, "san", and the prefixes "names" of the
// resources that clients with this ID may subscribe to. A client has the names of all rules for its ID; one that has no
// rule, or no SPIFFE ID in a verified certificate, may subscribe to nothing.
//
//	[{"san": "spiffe://mesh/ns/shop/sa/{service}", "names": ["shop.", "xdstp://shop/"],
//	  "node": {"id": "{service}/*", "metadata": {"service": "{service}"}}}]
//
// Each segment of the path of "san" is a text or a placeholder in braces, which stands for any segment.
//
// "node" is what the client's node has to be: its id, its cluster, and texts in its metadata, by their keys. They may have
// the placeholders of "san", and "*" at the end. Each placeholder but the first, and "*", has to stand behind a separator, which is
// a character other than a letter or a digit, and stands for one or more characters other than that separator: so
// no two IDs have one text. A field that the client leaves out is filled in, unless its pattern ends with "*". A rule does not
// apply to a client whose node, with what the rules before it filled in, is another one; and the stream of a
// client to which only such rules could apply ends with PERMISSION_DENIED.
func ParseAccess(data []byte) (Access, error) { return access.Parse(data) }

// recheck calls Options.Identify again for a stream whenever what it said holds no longer, until it fails or the recheck ends. The
// zero value is one that has nothing to do.
type recheck struct {
	mu    sync.Mutex
	timer *time.Timer
	ended bool
}

// begin returns what a client may have, and the node that it is. fail is called with a later error.
func (r *recheck) begin(
	ctx context.Context, identify func(context.Context, *corepb.Node) (*corepb.Node, time.Time, error), rules Access, node *corepb.Node, fail func(error),
) (access.Grant, *corepb.Node, error) {
	is, until := node, time.Time{}
	if identify != nil {
		var err error
		if is, until, err = identify(ctx, node); err != nil {
			return access.Grant{}, nil, status.Convert(err).Err()
		}
	}
	g, is, err := rules.Grant(ctx, is)
	r.mu.Lock()
	defer r.mu.Unlock()
	if err != nil || until.IsZero() || r.ended {
		return g, is, err
	}
	r.timer = time.AfterFunc(max(time.Until(until), time.Second), func() {
		if _, _, err := r.begin(ctx, identify, rules, node, fail); err != nil {
			fail(err)
		}
	})
	return g, is, nil
}

func (r *recheck) end() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ended = true
	if r.timer != nil {
		r.timer.Stop()
	}
}
