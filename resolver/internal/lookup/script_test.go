package lookup_test

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	grpcresolver "google.golang.org/grpc/resolver"
	"google.golang.org/grpc/resolver/dns"

	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/internal/xdstest/golden"
	"github.com/dynxds/dynxds/resolver/internal/lookup"
)

// fakes resolves names that end in ".fake:80", and gRPC's resolver the others. Its tests
// run in synctest bubbles and not in parallel.
var fakes = &fakeDNS{Builder: grpcresolver.Get("dns")}

type fakeDNS struct {
	grpcresolver.Builder

	mu    sync.Mutex
	reply string // the answer to further look-ups: see fakeName.answer
	// begun are the look-ups since the last step, open those that are not closed, in order.
	begun, open []*fakeName
}

// fakeName is one look-up of a name.
type fakeName struct {
	name string
	at   time.Time
	cc   grpcresolver.ClientConn
}

func (d *fakeDNS) Build(target grpcresolver.Target, cc grpcresolver.ClientConn, opts grpcresolver.BuildOptions) (grpcresolver.Resolver, error) {
	name, fake := strings.CutSuffix(target.Endpoint(), ".fake:80")
	if !fake {
		return d.Builder.Build(target, cc, opts)
	}
	n := &fakeName{name, time.Now(), cc}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.begun, d.open = append(d.begun, n), append(d.open, n)
	go n.answer(d.reply)
	return n, nil
}

// answer answers with an address, an error, or not at all.
func (n *fakeName) answer(answer string) {
	switch answer {
	case "":
	case "fails":
		n.cc.ReportError(errors.New("the server is away"))
	case "empty":
		_ = n.cc.UpdateState(grpcresolver.State{})
	default:
		var s grpcresolver.State
		for _, a := range strings.Split(answer, ",") {
			s.Addresses = append(s.Addresses, grpcresolver.Address{Addr: a})
		}
		_ = n.cc.UpdateState(s)
	}
}

// ResolveNow implements grpcresolver.Resolver.
func (*fakeName) ResolveNow(grpcresolver.ResolveNowOptions) {}

// Close implements grpcresolver.Resolver.
func (n *fakeName) Close() {
	fakes.mu.Lock()
	defer fakes.mu.Unlock()
	fakes.open = slices.DeleteFunc(fakes.open, func(o *fakeName) bool { return o == n })
}

// script is what testdata/lookups.txt leads.
type script struct {
	t       *testing.T
	began   time.Time
	ids     []string // of watches, in order
	watches map[string]*lookup.Watch
	open    int // as of the last step
	mu      sync.Mutex
	results []string
}

// TestScript runs the cases of testdata/lookups.txt, which describes its steps, one after the other: they share the queue of the process.
func TestScript(t *testing.T) {
	const file = "testdata/lookups.txt"
	head, cases, _ := strings.Cut(golden.Read(t, file), "== ")
	got := head
	for _, c := range strings.Split(cases, "\n== ") {
		title, steps, _ := strings.Cut(c, "\n")
		got += "== " + title + "\n"
		t.Run(title, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newScript(t)
				for line := range strings.Lines(steps) {
					step := strings.TrimSpace(strings.Split(line, "->")[0])
					if step != "" {
						got += strings.TrimRight(fmt.Sprintf("%-28s -> %s", step, s.run(strings.Fields(step))), " ") + "\n"
					}
				}
				s.run([]string{"replies"})
				s.run([]string{"stop"})
				s.run([]string{"least", "0s"})
			})
		})
		got += "\n"
	}
	golden.Check(t, file, strings.TrimRight(got, "\n")+"\n")
}

func newScript(t *testing.T) *script {
	return &script{t: t, began: time.Now(), watches: map[string]*lookup.Watch{}}
}

// run makes a step and returns what follows.
func (s *script) run(words []string) string {
	s.t.Helper()
	last := words[len(words)-1]
	switch words[0] {
	case "replies":
		fakes.mu.Lock()
		fakes.reply = strings.Join(words[1:], "")
		fakes.mu.Unlock()
	case "least":
		dns.SetMinResolutionInterval(duration(s.t, last))
	case "watch":
		s.watches[words[1]] = s.start(words[1], words[2], words[3])
		s.ids = append(s.ids, words[1])
	case "many", "clusters":
		for i := range number(s.t, last) {
			name, cluster := fmt.Sprint(words[1], i), words[1]
			if words[0] == "clusters" {
				cluster = name
			}
			s.watches[name] = s.start(words[1], name, cluster)
			s.ids = append(s.ids, name)
		}
	case "stop":
		for _, id := range slices.Backward(s.ids) { // those that wait before those that are looked up
			if len(words) == 1 || id == last {
				s.watches[id].Stop()
			}
		}
	case "ask":
		s.watches[last].ResolveNow()
	case "asks": // all the time
		for range duration(s.t, last) / (100 * time.Millisecond) {
			s.watches[words[1]].ResolveNow()
			time.Sleep(100 * time.Millisecond)
			synctest.Wait()
		}
	case "sleep":
		time.Sleep(duration(s.t, last))
	case "answer":
		for _, n := range s.underWay() {
			if n.name == words[1] {
				n.answer(last)
			}
		}
	case "first":
		for _, n := range s.underWay()[:number(s.t, words[1])] {
			n.answer(last)
		}
	}
	return s.after()
}

func (s *script) underWay() []*fakeName {
	fakes.mu.Lock()
	defer fakes.mu.Unlock()
	return slices.Clone(fakes.open)
}

// start watches a name. id names the watch in results.
func (s *script) start(id, name, cluster string) *lookup.Watch {
	if !strings.Contains(name, ":") {
		name += ".fake:80"
	}
	add := func(r lookup.Result) {
		text := id + ": " + strings.Join(r.Addresses, ",")
		if r.Err != nil {
			text += "!" + r.Err.Error()
		}
		s.mu.Lock()
		s.results = append(s.results, text)
		s.mu.Unlock()
	}
	w, known := lookup.Start(name, cluster, add)
	if known.Answered() {
		add(known)
	}
	return w
}

func number(t *testing.T, word string) int {
	t.Helper()
	n, err := strconv.Atoi(word)
	xdstest.NoError(t, err)
	return n
}

func duration(t *testing.T, word string) time.Duration {
	t.Helper()
	d, err := time.ParseDuration(word)
	xdstest.NoError(t, err)
	return d
}

// after returns the look-ups that have begun since the last step, by name or how many, the results, and how many look-ups
// are under way, if that has changed.
func (s *script) after() string {
	synctest.Wait()
	fakes.mu.Lock()
	defer fakes.mu.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	var parts []string
	if n := len(fakes.begun); n > 5 {
		parts = append(parts, fmt.Sprint(n, " look-ups"))
	} else {
		for _, b := range fakes.begun {
			at := b.at.Sub(s.began).String()
			if strings.Contains(at, ".") {
				at = "random"
			}
			parts = append(parts, b.name+" at "+at)
		}
	}
	if n := len(s.results); n > 5 {
		s.results = []string{fmt.Sprint(n, " results")}
	}
	parts = append(parts, slices.Sorted(slices.Values(s.results))...)
	if n := len(fakes.open); n != s.open {
		parts, s.open = append(parts, fmt.Sprint(n, " under way")), n
	}
	fakes.begun, s.results = nil, nil
	return strings.Join(parts, "; ")
}

func TestIntervalsAfterFailuresGrow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScript(t)
		s.run([]string{"replies", "fails"})
		w := s.start("w", "n", "g")
		for range 2000 {
			time.Sleep(time.Second)
			synctest.Wait()
			w.ResolveNow() // changes nothing
		}
		w.Stop()
		begun := fakes.begun
		s.run([]string{"replies"})
		want := 1.6
		for i := 1; i < len(begun); i++ {
			got := begun[i].at.Sub(begun[i-1].at).Seconds()
			if got < 0.79*want || got > 1.21*want {
				t.Errorf("look-up %d began %.1f s after the one before, want %.1f s, 20%% more or less", i, got, want)
			}
			want = min(120, want*1.6)
		}
		if n := len(begun); n < 18 || n > 30 {
			t.Errorf("%d look-ups in 2,000 s", n)
		}
	})
}
