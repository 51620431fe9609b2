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
	state state
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

// state is the published content.
type state struct {
	// meshes are that of plain names and, if there is an authority, that of its names.
	meshes []*meshroute.Mesh
	// made are the resources of the meshes, and written those of the folder, which may override them.
	made       map[key]*meshroute.Resource
	written    map[key]written
	overridden map[named]*folder.Resource
	// notes are on what clients reject, or do not get for that reason: in the store is what they had before, or an error.
	notes map[key]meshroute.Report
	tags  tags
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
	p := &Publisher{store: store, opts: opts, patience: patience}
	p.state = state{made: map[key]*meshroute.Resource{}, notes: map[key]meshroute.Report{}}
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
	meshes, err := p.build(content)
	if err != nil {
		return Summary{}, err
	}
	u, err := p.state.difference(content, meshes)
	if err != nil {
		return Summary{}, err
	}
	next := tagsOf(meshes, u.written)
	if err := next.check(); err != nil {
		return Summary{}, err
	}
	if err := u.pack(content); err != nil {
		return Summary{}, err
	}
	if err := u.check(content, &p.opts); err != nil {
		return Summary{}, err
	}

	// New constraints are sent before the variants that need them, and old ones removed after: a
	// client must not get a variant for other clients.
	late := p.prepare(ctx, p.state.tags.and(next))
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
	p.setTags(next)
	what := u.what()
	u.keep()
	p.state.meshes, p.state.tags = meshes, next
	reports, rejected := p.state.reports()
	return Summary{
		Version: version, Changed: len(u.put), Removed: len(u.deleted), What: what,
		Late: late, Reports: slices.Concat(content.Reports, meshes[0].Reports(), reports), Rejected: rejected,
	}, nil
}

func (p *Publisher) build(content *folder.Content) ([]*meshroute.Mesh, error) {
	authorities := slices.Compact([]string{"", p.opts.Authority})
	meshes := make([]*meshroute.Mesh, len(authorities))
	dir := content.Dir
	if p.opts.NoSources {
		dir = ""
	}
	for i, authority := range authorities {
		in := meshroute.Input{
			Services: content.Services, Policies: content.Policies, Authority: authority, SourceDir: dir, Separate: content.Separate,
		}
		var err error
		if meshes[i], err = meshroute.Build(in, p.state.mesh(i)); err != nil {
			return nil, err
		}
	}
	return meshes, nil
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
	constraints, err := p.dpds(node)
	if err != nil {
		// Tags too large for constraints are an error in DPDS. Here they count as none, and match no variant that is for some.
		constraints, _ = p.tags.Load().constraints(meshroute.ClientFromNode(&corepb.Node{
			UserAgentName: node.GetUserAgentName(), ClientFeatures: node.GetClientFeatures(),
		}))
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

// Errors returns the errors that are in the place of resources of a type. It is for the goroutine that
// publishes.
func (p *Publisher) Errors(typeURL string) []*meshroute.Resource {
	var list []*meshroute.Resource
	for k, r := range p.state.made {
		if k.typeURL == typeURL && r.Err != nil && p.state.overridden[k.named] == nil {
			list = append(list, r)
		}
	}
	return list
}
