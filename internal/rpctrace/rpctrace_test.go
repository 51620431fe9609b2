package rpctrace

import (
	"context"
	"reflect"
	"slices"
	"testing"
)

// hooks are the indexes of the hooks among the fields of a Trace.
var hooks = func() (hooks []int) {
	for f := range reflect.TypeFor[Trace]().NumField() {
		if reflect.TypeFor[Trace]().Field(f).IsExported() {
			hooks = append(hooks, f)
		}
	}
	return hooks
}()

// fire calls every hook of a Trace.
func fire(t *Trace) {
	v := reflect.ValueOf(t).Elem()
	for _, i := range hooks {
		hook := v.Field(i)
		hook.Call([]reflect.Value{reflect.Zero(hook.Type().In(0))})
	}
}

// logging returns a Trace whose hooks append their names to log.
func logging(log *[]string, prefix string) *Trace {
	t := new(Trace)
	v := reflect.ValueOf(t).Elem()
	for _, i := range hooks {
		v.Field(i).Set(reflect.MakeFunc(v.Field(i).Type(), func([]reflect.Value) []reflect.Value {
			*log = append(*log, prefix+v.Type().Field(i).Name)
			return nil
		}))
	}
	return t
}

func TestTracesCompose(t *testing.T) {
	t.Parallel()
	var log []string
	outer := With(t.Context(), logging(&log, "outer "))
	both := With(outer, logging(&log, "inner "))
	fire(FromContext(both))
	var want []string
	for _, f := range hooks {
		name := reflect.TypeFor[Trace]().Field(f).Name
		want = append(want, "inner "+name, "outer "+name)
	}
	if !slices.Equal(log, want) {
		t.Errorf("hooks called: %q, want %q", log, want)
	}

	log = nil
	fire(FromContext(With(outer, &Trace{Routed: func(Route) { log = append(log, "alone") }})))
	if len(log) != len(want)/2+1 || !slices.Equal(log[1:3], []string{"alone", "outer Routed"}) {
		t.Errorf("hooks called: %q, want those of outer, and one more", log)
	}

	log = nil
	fire(FromContext(outer))
	if len(log) != len(want)/2 {
		t.Errorf("hooks of the outer context called: %q", log)
	}
}

func TestATraceIsCopied(t *testing.T) {
	t.Parallel()
	var log []string
	trace := logging(&log, "")
	ctx := With(t.Context(), trace)
	*trace = Trace{}
	fire(FromContext(ctx))
	if len(log) != len(hooks) {
		t.Errorf("hooks called: %q, want all", log)
	}
}

func TestWithoutATrace(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	if With(ctx, nil) != ctx || FromContext(ctx) != nil {
		t.Error("a nil Trace changed the context")
	}
	fire(FromContext(With(ctx, new(Trace)))) // all hooks may be called
}

func TestObserve(t *testing.T) {
	t.Parallel()
	var log []string
	outer := With(t.Context(), &Trace{Routed: func(Route) { log = append(log, "application") }})
	trace := Observed(observer{&log}, FromContext(outer))
	fire(trace)
	fire(FromContext(outer)) // as an RPC on the way of the first one does
	Resending(trace)()
	Ended(trace, nil)
	for _, other := range []*Trace{nil, FromContext(outer)} {
		Resending(other)()
		Ended(other, nil)
	}
	if want := []string{"routed", "application", "picked", "application", "resent", "ended"}; !slices.Equal(log, want) {
		t.Errorf("hooks called: %q, want %q", log, want)
	}
}

// observer is an Observer that logs what it is told.
type observer struct{ log *[]string }

func (o observer) add(text string)   { *o.log = append(*o.log, text) }
func (o observer) Routed(Route)      { o.add("routed") }
func (o observer) Picked(Pick)       { o.add("picked") }
func (o observer) Resending() func() { return func() { o.add("resent") } }
func (o observer) Ended(error)       { o.add("ended") }

func TestSeesFilters(t *testing.T) {
	t.Parallel()
	without := With(t.Context(), &Trace{Routed: func(Route) {}})
	started := With(without, &Trace{FilterStarted: func(Filter) {}})
	for name, test := range map[string]struct {
		ctx  context.Context
		want bool
	}{
		"other hooks":        {without, false},
		"FilterStarted":      {started, true},
		"FilterEnded":        {With(without, &Trace{FilterEnded: func(Filter) {}}), true},
		"other hooks on top": {With(started, &Trace{Routed: func(Route) {}}), true},
	} {
		trace := FromContext(test.ctx)
		if got := []bool{SeesFilters(trace), SeesFilters(Observed(observer{new([]string)}, trace))}; !slices.Equal(got, []bool{test.want, test.want}) {
			t.Errorf("%s, alone and observed: %v, want %v", name, got, test.want)
		}
	}
}
