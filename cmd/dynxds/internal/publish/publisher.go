package publish

import (
	"fmt"
	"slices"
	"sync/atomic"

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
	// refresh makes a server ask NodeConstraints again.
	refresh func()
	// state is what is in the store.
	state state
	// keys are the tags of clients that NodeConstraints and DPDS are about: those
	// that make a difference in what is in the store and, while an update is under
	// way, in what comes.
	keys atomic.Pointer[[]string]
}

// state is what was published.
type state struct {
	// meshes are that of plain names and that of the authority, if there is one.
	meshes []*meshroute.Mesh
	// made has the resources of the meshes, written those that somebody wrote.
	made    map[key]*meshroute.Resource
	written map[key]*folder.Resource
}

// Summary is what an update came to.
type Summary struct {
	// Version is the store's.
	Version uint64
	// Changed and Removed count variants of resources.
	Changed, Removed int
	// Reports are what the authors of services and policies ought to know.
	Reports []meshroute.Report
}

// New returns a publisher into a store, which it takes to be empty. authority may
// be empty. refresh is called when the answers of NodeConstraints may have changed
// for streams that are there already.
func New(store *controlplane.Store, authority string, refresh func()) *Publisher {
	p := &Publisher{store: store, authority: authority, refresh: refresh}
	p.keys.Store(&[]string{})
	return p
}

// Publish puts the content into the store in the place of what Publish put there
// before. An error, a *strictyaml.Faults, says why the content cannot be; then
// everything stays as it is.
func (p *Publisher) Publish(content *folder.Content) (Summary, error) {
	meshes, err := p.build(content)
	if err != nil {
		return Summary{}, err
	}
	u := p.difference(meshes)
	if err := u.addWritten(&p.state, content.Resources); err != nil {
		return Summary{}, err
	}

	// Constraints that tell more clients apart come before the variants that take
	// them, and go after them: a client must not see a variant that is not for it.
	p.setKeys(slices.Concat(p.state.meshes, meshes))
	version, err := p.store.Update(func(tx *controlplane.Tx) {
		if p.state.meshes == nil && p.authority != "" {
			tx.SetDPDS(bootstrapfile.DPDSName(p.authority), p.dpds)
		}
		u.apply(tx)
	})
	if err != nil {
		p.setKeys(p.state.meshes)
		return Summary{}, fmt.Errorf("the store refused the update, and is as it was: %w", err)
	}
	p.setKeys(meshes)
	u.keep(&p.state)
	p.state.meshes = meshes
	return Summary{
		Version: version, Changed: len(u.set) + len(u.setWritten), Removed: len(u.removed) + len(u.removedWritten),
		Reports: meshes[0].Reports(),
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
			u.set[keyOf(r)] = r
		}
		for _, r := range removed {
			u.removed[keyOf(r)] = r
		}
	}
	return u
}

// NodeConstraints says which variants a client without constraints of its own gets,
// for controlplane.WithNodeConstraints.
func (p *Publisher) NodeConstraints(node *corepb.Node) dynparam.ByType {
	// Tags too large to be constraints are an error to DPDS; here they are as good
	// as none.
	constraints, _ := p.dpds(node)
	return constraints
}

// dpds says what a client has to subscribe with.
func (p *Publisher) dpds(node *corepb.Node) (dynparam.ByType, error) {
	return meshroute.ConstraintsFor(meshroute.ClientFromNode(node), *p.keys.Load())
}

// setKeys makes constraints those for the meshes, and has streams told if that may
// make a difference.
func (p *Publisher) setKeys(meshes []*meshroute.Mesh) {
	var keys []string
	for _, mesh := range meshes {
		keys = append(keys, mesh.Keys()...)
	}
	slices.Sort(keys)
	keys = slices.Compact(keys)
	if slices.Equal(*p.keys.Load(), keys) {
		return
	}
	p.keys.Store(&keys)
	p.refresh()
	p.store.RefreshDPDS("", nil)
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
