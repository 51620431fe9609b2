package publish

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	corepb "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"

	"github.com/dynxds/dynxds/cmd/dynxds/internal/bootstrapfile"
	"github.com/dynxds/dynxds/cmd/dynxds/internal/folder"
	"github.com/dynxds/dynxds/controlplane"
	"github.com/dynxds/dynxds/meshroute"
	"github.com/dynxds/dynxds/xdsclient/dynparam"
)

// Publisher fills a store. One goroutine at a time may call Publish; everything
// else is safe for concurrent use.
type Publisher struct {
	store     *controlplane.Store
	authority string
	streams   Streams
	// patience bounds how long an update waits for clients to take new constraints.
	patience time.Duration
	// state is what is in the store.
	state state
	// tags are those that NodeConstraints and DPDS are about: those that make a
	// difference in what is in the store and, while an update is under way, in what
	// comes.
	tags atomic.Pointer[tags]
}

// Streams are those of the store's server. Each function may be nil.
type Streams struct {
	// Refresh is called when the answers of NodeConstraints may have changed for
	// streams that are there already: RefreshNodeConstraints of the server.
	Refresh func()
	// Await waits for streams: Await of the server.
	Await func(context.Context, func(controlplane.ClientStatus) bool) (left int)
}

// state is what was published.
type state struct {
	// meshes are that of plain names and that of the authority, if there is one.
	meshes []*meshroute.Mesh
	// made has the resources of the meshes, written those that somebody wrote.
	made    map[key]*meshroute.Resource
	written map[key]*folder.Resource
	tags    tags
}

// Summary is what an update came to.
type Summary struct {
	// Version is the store's.
	Version uint64
	// Changed and Removed count variants of resources. What came out the same again
	// is not counted.
	Changed, Removed int
	// Late is how many clients did not take the constraints that the update brings
	// in time, and may have got variants that are not for them.
	Late int
	// Reports are what the authors of services and policies ought to know.
	Reports []meshroute.Report
}

// New returns a publisher into a store, which it takes to be empty. authority may
// be empty.
func New(store *controlplane.Store, authority string, streams Streams) *Publisher {
	p := &Publisher{store: store, authority: authority, streams: streams, patience: patience}
	p.tags.Store(&tags{})
	return p
}

// Publish puts the content into the store in the place of what Publish put there
// before. An error, a *document.Faults, says why the content cannot be; then
// everything stays as it is.
//
// If clients are told apart by more tags than before, Publish waits for those with
// dynamic parameters to take new constraints: for a second at most, and no longer than
// the context lasts. The content is published in any case.
func (p *Publisher) Publish(ctx context.Context, content *folder.Content) (Summary, error) {
	meshes, err := p.build(content)
	if err != nil {
		return Summary{}, err
	}
	u := p.difference(meshes)
	if err := u.addWritten(&p.state, content.Resources); err != nil {
		return Summary{}, err
	}
	next := tagsOf(meshes, u.written)
	if err := next.check(); err != nil {
		return Summary{}, err
	}

	// Constraints that tell more clients apart come before the variants that take
	// them, and go after them: a client must not see a variant that is not for it.
	late := p.prepare(ctx, p.state.tags.and(next))
	version, err := p.store.Update(func(tx *controlplane.Tx) {
		if p.state.meshes == nil && p.authority != "" {
			tx.SetDPDS(bootstrapfile.DPDSName(p.authority), p.dpds)
		}
		u.apply(tx)
	})
	if err != nil {
		p.setTags(p.state.tags)
		return Summary{}, fmt.Errorf("the store refused the update and did not change: %w", err)
	}
	p.setTags(next)
	u.keep(&p.state)
	p.state.meshes, p.state.tags = meshes, next
	return Summary{
		Version: version, Changed: len(u.set) + len(u.setWritten), Removed: len(u.removed) + len(u.removedWritten),
		Late: late, Reports: meshes[0].Reports(),
	}, nil
}

// build builds the meshes.
func (p *Publisher) build(content *folder.Content) ([]*meshroute.Mesh, error) {
	authorities := []string{""}
	if p.authority != "" {
		authorities = append(authorities, p.authority)
	}
	meshes := make([]*meshroute.Mesh, len(authorities))
	for i, authority := range authorities {
		in := meshroute.Input{
			Services: content.Services, Policies: content.Policies, Denials: content.Denials, Authority: authority,
		}
		var err error
		if meshes[i], err = meshroute.Build(in, p.before(i)); err != nil {
			return nil, err
		}
	}
	return meshes, nil
}

// before returns the i-th mesh in the store, or nil.
func (p *Publisher) before(i int) *meshroute.Mesh {
	if 0 <= i && i < len(p.state.meshes) {
		return p.state.meshes[i]
	}
	return nil
}

// difference returns what the meshes have that the store has not, and the other way
// round.
func (p *Publisher) difference(meshes []*meshroute.Mesh) *update {
	u := &update{set: map[key]*meshroute.Resource{}, removed: map[key]*meshroute.Resource{}}
	for i, mesh := range meshes {
		changed, removed := mesh.Changes(p.before(i))
		for _, r := range changed {
			if k := keyOf(r); !isUnchanged(p.state.made[k], r) {
				u.set[k] = r
			}
		}
		for _, r := range removed {
			u.removed[keyOf(r)] = r
		}
	}
	return u
}

// NodeConstraints says which variants a client without constraints of its own gets,
// for controlplane.Options.NodeConstraints.
func (p *Publisher) NodeConstraints(node *corepb.Node) dynparam.ByType {
	// Tags too large to be constraints are an error to DPDS; here they are as good
	// as none.
	constraints, _ := p.dpds(node)
	return constraints
}

// dpds says what a client has to subscribe with.
func (p *Publisher) dpds(node *corepb.Node) (dynparam.ByType, error) {
	return p.tags.Load().constraints(meshroute.ClientFromNode(node))
}

// Mesh returns what was published last, under the names of the authority if there is
// one; nil if nothing was. It is for the goroutine that publishes.
func (p *Publisher) Mesh() *meshroute.Mesh { return p.before(len(p.state.meshes) - 1) }

// Errors returns the names of a type that some client gets an error for. It is for
// the goroutine that publishes.
func (p *Publisher) Errors(typeURL string) []string {
	var names []string
	for k, r := range p.state.made {
		if k.typeURL == typeURL && r.Err != nil {
			names = append(names, k.name)
		}
	}
	return names
}
