package dpdswrapper_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/dynxds/dynxds/internal/xdsresource"
	"github.com/dynxds/dynxds/xdsclient"
	"github.com/dynxds/dynxds/xdsclient/dynparam"
)

// oracle is the simplest model of a wrapper: it has the constraints in force and, for each
// watch, whether the layer above has a resource, and whether that is an old one.
type oracle struct {
	t       *testing.T
	r       *rand.Rand
	f       *fixture
	own     dynparam.ByType
	dpds    map[string]*oracleDPDS // by authority, while it has watches
	watches []*oracleWatch
	steps   []string
}

type oracleDPDS struct {
	answered    bool
	constraints dynparam.ByType
}

type oracleWatch struct {
	typ             *xdsclient.ResourceType
	authority, name string
	above           *above
	stop            func()
	constraints     dynparam.Constraints // of the last start
	started         bool
	holds, old      bool
}

var (
	oracleTypes = []*xdsclient.ResourceType{xdsresource.ListenerType, xdsresource.ClusterType}
	oracleErrs  = []error{errDoesNotExist, errNotFound, errDenied, errInternal, errInvalid, errUnreachable, errTimeout}
)

// TestModel takes random steps. After each it compares the watches below, and the calls to the
// layer above, with those of the oracle.
func TestModel(t *testing.T) {
	t.Parallel()
	for seed := range uint64(60) {
		o := &oracle{
			t: t, r: rand.New(rand.NewPCG(seed, 4)), f: newFixture(t, authorities),
			dpds: make(map[string]*oracleDPDS),
		}
		for range 150 {
			o.step()
			o.check()
			if t.Failed() {
				t.Fatalf("seed %d, after %q", seed, o.steps)
			}
		}
	}
}

func (o *oracle) step() {
	switch k := o.r.IntN(20); {
	case k < 4 && len(o.watches) < 12:
		o.watch()
	case k < 6 && len(o.watches) > 0:
		o.unwatch(o.r.IntN(len(o.watches)))
	case k < 9:
		o.answerDPDS()
	case k == 9:
		o.own = o.randomByType(true)
		o.note("own %v", o.own.ToProto())
		o.f.wrapper.SetConstraints(o.own)
	default:
		o.answer()
	}
	o.update()
}

func (o *oracle) note(format string, args ...any) {
	o.steps = append(o.steps, fmt.Sprintf(format, args...))
}

func (o *oracle) randomByType(wildcard bool) dynparam.ByType {
	types := map[string]dynparam.Constraints{}
	for _, typ := range []string{listenerType, clusterType, dynparam.AnyType} {
		if o.r.IntN(2) == 0 && (wildcard || typ != dynparam.AnyType) {
			types[typ] = exact(string(rune('a'+o.r.IntN(3))), fmt.Sprint(o.r.IntN(2)))
		}
	}
	return byType(types)
}

func (o *oracle) watch() {
	w := &oracleWatch{
		typ:       oracleTypes[o.r.IntN(2)],
		authority: []string{"a", "b", "x", ""}[o.r.IntN(4)],
		above:     new(above),
	}
	w.name = fmt.Sprintf("old-style %d", o.r.IntN(2))
	if w.authority != "" {
		w.name = name(w.authority, w.typ.TypeURL[len("type.googleapis.com/"):], fmt.Sprint(o.r.IntN(2)))
	}
	o.note("watch %s %s", w.typ.Name, w.name)
	w.stop = o.f.Watch(w.typ, w.name, w.above)
	o.watches = append(o.watches, w)
}

func (o *oracle) unwatch(i int) {
	o.note("stop %s %s", o.watches[i].typ.Name, o.watches[i].name)
	o.watches[i].stop()
	o.watches = slices.Delete(o.watches, i, i+1)
}

func (o *oracle) answerDPDS() {
	authority, id := "a", "for-a"
	if o.r.IntN(2) == 0 {
		authority, id = "b", "for-b"
	}
	d := o.dpds[authority]
	if d == nil {
		return
	}
	below := o.f.find("DPDS " + id)
	switch o.r.IntN(4) {
	case 0:
		err := oracleErrs[o.r.IntN(len(oracleErrs))]
		o.note("%s: %s", id, text(err))
		d.answered, d.constraints = true, dynparam.ByType{}
		below.change(nil, err)
	case 1:
		if !d.answered { // nothing to be ambient to
			return
		}
		o.note("%s: ambient", id)
		below.ambient(errUnreachable)
	default:
		d.answered, d.constraints = true, o.randomByType(false)
		o.note("%s: %v", id, d.constraints.ToProto())
		below.change(&xdsresource.DynamicParameterConstraintsMap{Constraints: d.constraints}, nil)
	}
}

// answer gives a watched resource an answer.
func (o *oracle) answer() {
	var running []*oracleWatch
	for _, w := range o.watches {
		if w.started {
			running = append(running, w)
		}
	}
	if len(running) == 0 {
		return
	}
	w := running[o.r.IntN(len(running))]
	below := o.below(w)
	err := oracleErrs[o.r.IntN(len(oracleErrs))]
	var want string
	switch k := o.r.IntN(10); {
	case k < 5:
		want = fmt.Sprintf("value %d", o.r.IntN(100))
		w.holds, w.old = true, false
		below.change(want, nil)
	case k < 9:
		withdrawn := err == errDoesNotExist || err == errNotFound || err == errDenied
		if w.holds && w.old && !withdrawn {
			want = "~" + text(err)
		} else {
			want = "!" + text(err)
			w.holds = false
		}
		below.change(nil, err)
	default:
		want = "~unreachable"
		below.ambient(errUnreachable)
	}
	o.note("%v says %s", below, want)
	w.above.expect(o.t, want)
}

// below finds the watch below of a watch, by the watcher that it calls.
func (o *oracle) below(w *oracleWatch) *fakeWatch {
	for _, b := range o.f.live {
		if b.typ == w.typ && b.name == w.name && b.constraints.Equal(w.constraints) && o.calls(b, w) {
			return b
		}
	}
	o.t.Fatalf("%s %s with %v is not watched; only %v; after %q", w.typ.Name, w.name, w.constraints, o.f.live, o.steps)
	return nil
}

// calls reports whether a watch below calls the watcher of a watch, by an ambient error.
func (o *oracle) calls(b *fakeWatch, w *oracleWatch) bool {
	b.ambient(errRefused)
	found := len(w.above.calls) > 0
	for _, x := range o.watches {
		x.above.calls = nil
	}
	return found
}

// update brings the oracle up to date with the constraints in force.
func (o *oracle) update() {
	for _, authority := range []string{"a", "b"} {
		used := slices.ContainsFunc(o.watches, func(w *oracleWatch) bool { return w.authority == authority })
		if !used {
			delete(o.dpds, authority)
		} else if o.dpds[authority] == nil {
			o.dpds[authority] = new(oracleDPDS)
		}
	}
	for _, w := range o.watches {
		constraints := o.own.For(w.typ.TypeURL)
		if d := o.dpds[w.authority]; d != nil {
			if !d.answered {
				continue
			}
			constraints = constraints.Merge(d.constraints.For(w.typ.TypeURL))
		}
		if w.started && !constraints.Equal(w.constraints) {
			w.old = true
		}
		w.started, w.constraints = true, constraints
	}
}

// check compares the watches below, and checks that there were no other calls.
func (o *oracle) check() {
	var want, got []string
	for authority := range o.dpds {
		want = append(want, "DPDS for-"+authority)
	}
	for _, w := range o.watches {
		if w.started {
			want = append(want, (&fakeWatch{typ: w.typ, name: w.name, constraints: w.constraints}).String())
		}
		w.above.expect(o.t)
	}
	for _, b := range o.f.live {
		got = append(got, b.String())
	}
	slices.Sort(want)
	slices.Sort(got)
	if diff := cmp.Diff(want, got); diff != "" {
		o.t.Errorf("watches below (-want +got):\n%s", diff)
	}
}
