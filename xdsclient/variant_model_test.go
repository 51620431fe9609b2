package xdsclient

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"google.golang.org/protobuf/types/known/anypb"

	"github.com/dynxds/dynxds/internal/xdstest"
	discoverypb "github.com/dynxds/dynxds/proto/dynxds/discovery/v3"
	"github.com/dynxds/dynxds/xdsclient/dynparam"
	"github.com/dynxds/dynxds/xdsclient/internal/ads"
	"github.com/dynxds/dynxds/xdsclient/internal/ads/wire"
)

// worldVariant is a variant that the modelled server has.
type worldVariant struct {
	parameters dynparam.Parameters
	text       string
	// denied says that there is an error in place of the variant.
	denied bool
}

func (v worldVariant) version() string { return v.parameters.String() + v.text }

// model is a server with variants, in the plainest way, and what each watch is to have
// in the end. The client is right if each watch ends up with what the oracle says,
// whatever was on the way.
type model struct {
	t      *testing.T
	r      *rand.Rand
	client *XDSClient
	types  *testTypes
	// collections says that the protocol has them, and errors that variants may have
	// an error in their place.
	collections, errors bool
	// d is the server, unless that is a real one.
	d     *desk
	heard func()
	// resources are the names that there may be something under.
	resources []string
	// world has the variants by name and key of their parameters.
	world map[string]map[string]worldVariant
	// told is what a server that sends changes has told of each subscription, or
	// member, on the stream.
	told    map[string]string
	watches []*modelWatch
	steps   []string
}

// modelWatch is a watch of a resource or a collection, and what it was told last.
type modelWatch struct {
	name        string
	constraints dynparam.Constraints
	stop        func()

	mu   sync.Mutex
	last map[string]string // by member; of a resource by ""
	// heard is called after each change, if it is set.
	heard func()
}

func (w *modelWatch) hear(member string, value any, err error, done func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.heard != nil {
		defer w.heard()
	}
	if c, ok := value.(interface{ GetAltStatName() string }); ok && err == nil {
		w.last[member] = c.GetAltStatName()
	} else {
		delete(w.last, member)
	}
	done()
}

func (w *modelWatch) ResourceChanged(value any, err error, done func()) {
	w.hear("", value, err, done)
}

// modelCollection is the watcher of a collection.
type modelCollection struct{ *modelWatch }

func (w modelCollection) MemberChanged(m Member, value any, err error, done func()) {
	w.hear(memberText(m), value, err, done)
}
func (w modelCollection) CollectionChanged(_ error, done func())      { done() }
func (w modelCollection) AmbientError(_ Member, _ error, done func()) { done() }
func (w *modelWatch) AmbientError(_ error, done func())               { done() }
func (w *modelWatch) isCollection() bool                              { return isCollection(w.name) }
func (m *model) note(format string, args ...any) {
	m.steps = append(m.steps, fmt.Sprintf(format, args...))
}
func (m *model) matching(name string, c dynparam.Constraints) []worldVariant {
	var found []worldVariant
	for _, key := range slices.Sorted(maps.Keys(m.world[name])) {
		if v := m.world[name][key]; c.Match(v.parameters) {
			found = append(found, v)
		}
	}
	return found
}

// choice is the variant that a subscription to a name gets. An error takes part in the
// choice as the variant would in whose place it is.
func (m *model) choice(name string, c dynparam.Constraints) (worldVariant, bool) {
	variants := m.matching(name, c)
	all := make([]dynparam.Parameters, len(variants))
	for i, v := range variants {
		all[i] = v.parameters
	}
	i := c.Choose(all).Index
	if i < 0 || variants[i].denied {
		return worldVariant{}, false
	}
	return variants[i], true
}

// TestModelOfVariants takes random steps: variants come, change and go, watches with
// constraints start and stop, streams break. After each the watches are compared with
// a brute-force oracle.
func TestModelOfVariants(t *testing.T) {
	for _, variant := range []string{"SotW", "SotW of a type without full state", "delta"} {
		xdstest.Parallel(t, variant, func(t *testing.T) {
			for seed := range uint64(30) {
				synctest.Test(t, func(t *testing.T) {
					d := newDesk(t, variant == "delta", "fail_on_data_errors")
					m := &model{
						t: t, r: rand.New(rand.NewPCG(seed, 7)), client: d.k.c, types: d.types, collections: d.delta, d: d, resources: modelResources(),
						world: make(map[string]map[string]worldVariant), told: make(map[string]string),
					}
					m.d.types.clusters.FullStateInSotW = variant == "SotW"
					for range 60 {
						m.step()
						m.check()
						if t.Failed() {
							t.Fatalf("seed %d, after\n%s", seed, strings.Join(m.steps, "\n"))
						}
					}
				})
				if t.Failed() {
					return
				}
			}
		})
	}
}

func modelResources() []string {
	return []string{"old-style", collectionDir + "a", collectionDir + "b"}
}

// names are those that may be watched.
func (m *model) names() []string {
	if m.collections {
		return append(slices.Clip(m.resources), collectionName)
	}
	return m.resources
}

func pick[T any](r *rand.Rand, list []T) T { return list[r.IntN(len(list))] }

func (m *model) step() {
	switch k := m.r.IntN(20); {
	case k < 5 && len(m.watches) < 8:
		m.watch()
	case k < 7 && len(m.watches) > 0:
		i := m.r.IntN(len(m.watches))
		m.note("stop %s %v", m.watches[i].name, m.watches[i].constraints)
		m.watches[i].stop()
		m.watches = slices.Delete(m.watches, i, i+1)
	case k < 9 && len(m.watches) > 0:
		m.move()
	case k == 9 && len(m.watches) > 0 && m.d != nil:
		m.note("the stream breaks")
		m.breaks()
	default:
		for range 1 + m.r.IntN(3) {
			m.changeWorld()
		}
	}
}

func (m *model) breaks() {
	m.d.breaks()
	m.told = make(map[string]string)
}

func (m *model) constraints() dynparam.Constraints {
	return choose(pick(m.r, [][]string{{}, {"env=prod"}, {"env=test"}, {"env!=prod"}, {"shard=0-2"}, {"shard=1-3"}, {"shard=2"}, {"env=prod", "shard=0-3"}})...)
}

func (m *model) watch() {
	name := pick(m.r, m.names())
	m.start(name, m.constraints())
}

func (m *model) start(name string, c dynparam.Constraints) {
	m.note("watch %s %v", name, c)
	w := &modelWatch{name: name, constraints: c, last: make(map[string]string), heard: m.heard}
	w.start(m.client, m.types)
	m.watches = append(m.watches, w)
}

func (w *modelWatch) start(c *XDSClient, types *testTypes) {
	if w.isCollection() {
		w.stop = c.WatchCollectionLocator(types.clusters, w.name, w.constraints, modelCollection{w})
	} else {
		w.stop = c.WatchLocator(types.clusters, w.name, w.constraints, w)
	}
}

// move gives a watch other constraints.
func (m *model) move() {
	i := m.r.IntN(len(m.watches))
	m.client.Batch(func() {
		old := m.watches[i]
		m.start(old.name, m.constraints())
		m.note("… in place of %v", old.constraints)
		old.stop()
	})
	m.watches = slices.Delete(m.watches, i, i+1)
}

func (m *model) changeWorld() {
	name := pick(m.r, m.resources)
	var params []string
	if m.r.IntN(3) > 0 {
		params = append(params, "env="+pick(m.r, []string{"prod", "test"}))
	}
	if m.r.IntN(3) > 0 {
		params = append(params, fmt.Sprint("shard=", m.r.IntN(4)))
	}
	p, err := dynparam.NewParameters(parameters(strings.Join(params, ",")))
	xdstest.NoError(m.t, err)
	if m.world[name] == nil {
		m.world[name] = make(map[string]worldVariant)
	}
	if _, ok := m.world[name][p.Key()]; ok && m.r.IntN(2) == 0 {
		m.note("%s %v goes", name, p)
		delete(m.world[name], p.Key())
		return
	}
	v := worldVariant{parameters: p, text: fmt.Sprint("text ", m.r.IntN(5))}
	v.denied = m.errors && m.r.IntN(5) == 0
	m.note("%s %v is %s, denied: %t", name, p, v.text, v.denied)
	m.world[name][p.Key()] = v
}

// check has client and server talk until both are silent, and compares.
func (m *model) check() {
	synctest.Wait()
	if !m.talk(true) {
		return
	}
	for range 20 {
		synctest.Wait()
		if !m.talk(false) {
			m.compare()
			return
		}
	}
	m.t.Error("client and server do not come to an end")
}

// talk has the server hear what the client has to say and answer, if there is
// anything, or push is set. It reports whether something was said.
func (m *model) talk(push bool) bool {
	if m.d.k.channel.link.Closed() { // the last watch has stopped: the next one opens a channel
		m.reopen()
	}
	said := false
	for b := m.d.k.request(); b != nil; b = m.d.k.request() {
		said = m.listen(b) || said
	}
	if !said && !push {
		return false
	}
	var r *answer
	if m.d.types.clusters.FullStateInSotW {
		r = m.fullState()
	} else if r = m.changes(); len(r.Resources)+len(r.RemovedResourceNames) == 0 {
		return said
	}
	m.r.Shuffle(len(r.Resources), func(i, j int) { r.Resources[i], r.Resources[j] = r.Resources[j], r.Resources[i] })
	if v := m.d.says(func(into *answer) {
		into.Resources, into.RemovedResourceNames = r.Resources, r.RemovedResourceNames
	}); v == ads.VerdictRejected {
		m.t.Error("a response was rejected")
	}
	return true
}

// reopen makes the desk the channel of the client again.
func (m *model) reopen() {
	ch := newManagementServer(m.d.k.c, m.d.k.c.config.Servers[0], "")
	m.d.k.channel = ch
	m.d.k.c.channels[channelKey{server: ch.server.Key()}] = ch
	ch.Opened()
	m.d.asked, m.told = make(map[string]bool), make(map[string]string)
}

// listen reports whether a request changes what is subscribed to, or asks again.
func (m *model) listen(b []byte) bool {
	changes := m.hear(b)
	for _, change := range changes {
		for key := range m.told { // what is asked for again is told again
			if key == change[1:] || strings.HasPrefix(key, change[1:]+" has ") {
				delete(m.told, key)
			}
		}
	}
	if m.d.delta {
		m.listenToVersions(b)
	}
	return len(changes) > 0
}

func (m *model) hear(b []byte) []string {
	if m.d.delta {
		return m.d.hearDelta(b)
	}
	return m.d.hearSotW(b)
}

// listenToVersions takes what the client says it has.
func (m *model) listenToVersions(b []byte) {
	var r discoverypb.DeltaDiscoveryRequest
	m.d.unmarshal(b, &r)
	for _, l := range r.GetResourceLocatorsSubscribe() {
		if v := r.GetInitialResourceVersions()[l.GetName()]; v != "" {
			m.told[locatorText(l)] = v
		}
	}
}

// subscriptions are what the server was asked for, in order. They are those of the
// watches, if the client does as it should.
func (m *model) subscriptions() []wire.Locator {
	known := make(map[string]wire.Locator)
	for _, w := range m.watches {
		l := &discoverypb.ResourceLocator{Name: w.name, DynamicParameterConstraints: w.constraints.ToProto()}
		known[locatorText(l)] = wire.Locator{Name: w.name, Constraints: w.constraints}
	}
	var list []wire.Locator
	for _, text := range slices.Sorted(maps.Keys(m.d.asked)) {
		l, ok := known[text]
		if !ok {
			m.t.Errorf("%s is subscribed to, and not watched", text)
		}
		list = append(list, l)
	}
	if len(list) < len(known) {
		m.t.Errorf("%d of %d locators are subscribed to", len(list), len(known))
	}
	return list
}

func (m *model) pack(name string, v worldVariant) *discoverypb.Resource {
	a, err := anypb.New(cluster(name, v.text))
	xdstest.NoError(m.t, err)
	return &discoverypb.Resource{Name: name, Version: v.version(), Resource: a, DynamicParameters: v.parameters.Map()}
}

// fullState is what a SotW server sends: each variant that a subscription gets, once,
// and an error for those that get none.
func (m *model) fullState() *answer {
	r, sent := &answer{}, make(map[string]bool)
	for _, l := range m.subscriptions() {
		v, ok := m.choice(l.Name, l.Constraints)
		if !ok {
			r.RemovedResourceNames = append(r.RemovedResourceNames, m.subscription(l))
		} else if key := l.Name + v.version(); !sent[key] {
			sent[key] = true
			r.Resources = append(r.Resources, m.pack(l.Name, v))
		}
	}
	return r
}

func (*model) subscription(l wire.Locator) *discoverypb.ResourceName {
	return &discoverypb.ResourceName{Name: l.Name, DynamicParameterConstraints: l.Constraints.ToProto()}
}

// changes is what a server sends that sends changes: to each subscription what it was not
// told. A variant that several want is there once.
func (m *model) changes() *answer {
	r, sent := &answer{}, make(map[string]bool)
	send := func(name string, v worldVariant) {
		if key := name + v.version(); !sent[key] {
			sent[key] = true
			r.Resources = append(r.Resources, m.pack(name, v))
		}
	}
	for _, l := range m.subscriptions() {
		key := locatorText(&discoverypb.ResourceLocator{Name: l.Name, DynamicParameterConstraints: l.Constraints.ToProto()})
		if isCollection(l.Name) {
			m.collectionChanges(key, l, r, send)
			continue
		}
		v, ok := m.choice(l.Name, l.Constraints)
		switch before, told := m.told[key]; {
		case ok && (!told || before != v.version()):
			m.told[key] = v.version()
			send(l.Name, v)
		case !ok && (!told || before != ""):
			m.told[key] = ""
			r.RemovedResourceNames = append(r.RemovedResourceNames, m.subscription(l))
		}
	}
	return r
}

func (m *model) collectionChanges(key string, l wire.Locator, r *answer, send func(string, worldVariant)) {
	here := make(map[string]bool)
	for _, name := range []string{collectionDir + "a", collectionDir + "b"} {
		for _, v := range m.matching(name, l.Constraints) {
			topic := key + " has " + memberText(Member{name, v.parameters})
			here[topic] = true
			if m.told[topic] != v.version() {
				m.told[topic] = v.version()
				send(name, v)
			}
		}
	}
	if _, told := m.told[key]; !told && len(here) == 0 { // the collection is empty
		r.RemovedResourceNames = append(r.RemovedResourceNames, m.subscription(l))
	}
	m.told[key] = "collection"
	for topic := range m.told {
		member, ok := strings.CutPrefix(topic, key+" has ")
		if !ok || here[topic] {
			continue
		}
		delete(m.told, topic)
		name, params, _ := strings.Cut(strings.TrimSuffix(member, "}"), "{")
		exact := dynparam.Constraints{}
		if params != "" {
			exact, _ = dynparam.Exact(parameters(params))
		}
		r.RemovedResourceNames = append(r.RemovedResourceNames, m.subscription(wire.Locator{Name: name, Constraints: exact}))
	}
}

// compare checks what each watch has.
func (m *model) compare() {
	if fault := m.difference(); fault != "" {
		m.t.Error(fault)
	}
}

// difference says which watch has not what the oracle says, or is empty.
func (m *model) difference() string {
	for _, w := range m.watches {
		want := make(map[string]string)
		if w.isCollection() {
			for _, name := range []string{collectionDir + "a", collectionDir + "b"} {
				for _, v := range m.matching(name, w.constraints) {
					if !v.denied {
						want[memberText(Member{name, v.parameters})] = v.text
					}
				}
			}
		} else if v, ok := m.choice(w.name, w.constraints); ok {
			want[""] = v.text
		}
		w.mu.Lock()
		got := maps.Clone(w.last)
		w.mu.Unlock()
		if !maps.Equal(got, want) {
			return fmt.Sprintf("%s %v has %q, want %q", w.name, w.constraints, got, want)
		}
	}
	return ""
}
