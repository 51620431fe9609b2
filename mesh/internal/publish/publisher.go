package publish

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	corepb "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"

	"github.com/dynxds/dynxds/mesh/controlplane"
	"github.com/dynxds/dynxds/mesh/internal/bootstrapfile"
	"github.com/dynxds/dynxds/mesh/internal/folder"
	"github.com/dynxds/dynxds/mesh/meshroute"
	"github.com/dynxds/dynxds/xdsclient/dynparam"
)

// Publisher fills a store. One goroutine at a time may call Publish; the other methods are safe for
// concurrent use unless they say otherwise.
type Publisher struct {
	store *controlplane.Store
	opts  Options
	// patience bounds the wait for clients to take new constraints.
	patience time.Duration
	// state is the content of the store.
	state *state
	// tags are those in the constraints of NodeConstraints and DPDS: the tags that select
	// variants in the store and, during an update, in the new content.
	tags atomic.Pointer[tags]
}

// Options say what is published of a folder.
type Options struct {
	// Authority is that of resources with names of xRFC TP1, beside those with plain names. It may be
	// empty.
	Authority string
	// NoSources leaves out of the resources where their parts were written.
	NoSources bool
	// Check returns what clients find wrong with a resource that an update would store, empty for nothing. What is an error they reject:
	// the update fails, or if the content is Separate, they do not get it; warnings count for resources of the folder. It is called by
	// several goroutines, and may be nil.
	Check func(*controlplane.Resource) (meshroute.Severity, string)
	// Permissive publishes also what clients reject.
	Permissive bool
	// Refresh is called when the results of NodeConstraints may have changed: RefreshNodeConstraints of the store's server. It may be nil.
	Refresh func()
	// Await waits for streams: Await of the server. It may be nil.
	Await func(context.Context, func(controlplane.ClientStatus) bool) (left int)
}

// state is the published content, or that of an update. Its maps are by meshroute.Resource.Key.
type state struct {
	// meshes are that of plain names and, if there is an authority, that of its names.
	meshes []*meshroute.Mesh
	// written are the resources of the folder, and overridden the names of the meshes that some of them override.
	written    map[string]written
	overridden map[named]*folder.Resource
	// notes are on what clients reject, or do not get for that reason: in the store is what they had before, or an error.
	notes map[string]meshroute.Report
	tags  tags
}

// named identifies a resource, with all its variants.
type named struct{ typeURL, name string }

// written is a resource of the folder.
type written struct {
	*meshroute.Resource
	from *folder.Resource
}

// Summary is the result of an update.
type Summary struct {
	// Version is the store's.
	Version uint64
	// Changed and Removed count variants of resources. What names the services that these belong to, and resources of no
	// service, in order.
	Changed, Removed int
	What             []string
	// Late is the number of clients that did not take new constraints in time, and may have got
	// variants for other clients.
	Late int
	// Reports are for the authors of services and policies. Rejected are on what clients get of a permissive publisher, and reject.
	Reports, Rejected []meshroute.Report
}

// New returns a publisher for an empty store.
func New(store *controlplane.Store, opts Options) *Publisher {
	p := &Publisher{store: store, opts: opts, patience: patience, state: &state{notes: map[string]meshroute.Report{}}}
	p.tags.Store(&tags{})
	return p
}

// Publish replaces the published content. If the content is invalid, the error is a
// *document.Faults, and nothing changes, as after an error of Options.Check.
//
// If variants are selected by more tags than before, Publish waits for clients with dynamic parameters
// to take new constraints: for a second at most, and no longer than the context. The content is
// published in any case.
func (p *Publisher) Publish(ctx context.Context, content *folder.Content) (Summary, error) {
	next, err := p.read(content)
	if err != nil {
		return Summary{}, err
	}
	if err := next.tags.check(); err != nil {
		return Summary{}, err
	}
	u := p.state.difference(next)
	if err := u.pack(content); err != nil {
		return Summary{}, err
	}
	if err := u.check(content, &p.opts); err != nil {
		return Summary{}, err
	}

	// New constraints are sent before the variants that need them, and old ones removed after: a
	// client must not get a variant for other clients.
	late := p.prepare(ctx, p.state.tags.and(next.tags))
	version, err := p.store.Update(func(tx *controlplane.Tx) {
		if p.state.meshes == nil && p.opts.Authority != "" {
			tx.SetDPDS(bootstrapfile.DPDSName(p.opts.Authority), p.dpds)
		}
		u.apply(tx)
	})
	if err != nil {
		p.setTags(p.state.tags)
		return Summary{}, fmt.Errorf("the store refused the update and did not change: %w", err)
	}
	p.setTags(next.tags)
	p.state = next
	reports, rejected := next.reports()
	return Summary{
		Version: version, Changed: len(u.put), Removed: len(u.deleted), What: u.what(), Late: late,
		Reports: append(slices.Insert(next.meshes[0].Reports(), 0, content.Reports...), reports...), Rejected: rejected,
	}, nil
}

// read returns the state of a content, without notes. The error has resources of the folder that conflict with those of services and policies.
func (p *Publisher) read(content *folder.Content) (*state, error) {
	s := &state{written: make(map[string]written, len(content.Resources)), overridden: map[named]*folder.Resource{}}
	dir := content.Dir
	if p.opts.NoSources {
		dir = ""
	}
	for i, authority := range slices.Compact([]string{"", p.opts.Authority}) {
		in := meshroute.Input{
			Services: content.Services, Policies: content.Policies, Authority: authority, SourceDir: dir, Separate: content.Separate,
		}
		mesh, err := meshroute.Build(in, p.state.mesh(i))
		if err != nil {
			return nil, err
		}
		s.meshes = append(s.meshes, mesh)
	}
	if err := s.write(content); err != nil {
		return nil, err
	}
	s.tags = tagsOf(s.meshes, s.written)
	return s, nil
}

// mesh returns the i-th mesh in the store, or nil.
func (s *state) mesh(i int) *meshroute.Mesh {
	if 0 <= i && i < len(s.meshes) {
		return s.meshes[i]
	}
	return nil
}

// NodeConstraints is for controlplane.Options.NodeConstraints.
func (p *Publisher) NodeConstraints(node *corepb.Node) dynparam.ByType {
	return p.Constraints(meshroute.ClientFromNode(node))
}

// Constraints are the NodeConstraints of a client.
func (p *Publisher) Constraints(c meshroute.Client) dynparam.ByType {
	constraints, err := p.tags.Load().constraints(c)
	if err != nil {
		// Tags too large for constraints are an error in DPDS. Here they count as none, and match no variant that is for some.
		constraints, _ = p.tags.Load().constraints(meshroute.Client{Implementation: c.Implementation})
	}
	return constraints
}

// dpds returns the constraints that a client must subscribe with.
func (p *Publisher) dpds(node *corepb.Node) (dynparam.ByType, error) {
	return p.tags.Load().constraints(meshroute.ClientFromNode(node))
}

// Mesh returns the last published mesh, with the names of the authority if there is one; nil if there
// is none. It is for the goroutine that publishes.
func (p *Publisher) Mesh() *meshroute.Mesh { return p.state.mesh(len(p.state.meshes) - 1) }

// Errors returns the errors that are in the place of resources. It is for the goroutine that publishes.
func (p *Publisher) Errors() []*meshroute.Resource {
	var list []*meshroute.Resource
	for _, mesh := range p.state.meshes {
		for r := range mesh.All {
			if r.Err != nil && p.state.overridden[nameOf(r)] == nil {
				list = append(list, r)
			}
		}
	}
	return list
}
