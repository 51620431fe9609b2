package balancer_test

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing/synctest"
	"time"

	"github.com/cespare/xxhash/v2"
	grpcbalancer "google.golang.org/grpc/balancer"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/dynxds/dynxds/internal/decision"
	"github.com/dynxds/dynxds/internal/inspect"
	"github.com/dynxds/dynxds/internal/livestate"
	"github.com/dynxds/dynxds/internal/load"
	"github.com/dynxds/dynxds/internal/rpctrace"
	"github.com/dynxds/dynxds/internal/xdstest"
)

// ask is step for RPCs and questions.
func (s *script) ask(name, verb, rest string, words []string) string {
	s.T.Helper()
	hold := strings.HasPrefix(verb, "hold")
	next := func(failing ...string) string {
		s.rpcs++
		return s.rpc(name, &decision.Extra{RPC: hash(s.rpcs) * 0x9e3779b97f4a7c15}, false, hold, failing...)
	}
	switch verb {
	case "rpcs", "hold":
		return s.several(s.number(words[0]), func() string { return next(words[1:]...) })
	case "shares":
		got, want := make(map[string]int), make(map[string]float64)
		for range s.number(words[0]) {
			got[next()]++
		}
		if len(words) == 1 {
			xdstest.Equal(s.T, "RPCs that wait", 0, got["waits"])
			return ""
		}
		for _, word := range words[1:] {
			to, share, _ := strings.Cut(word, "*")
			var err error
			want[to], err = strconv.ParseFloat(share, 64)
			xdstest.NoError(s.T, err)
		}
		xdstest.Shares(s.T, rest, want, got)
		return ""
	case "header":
		s.md = metadata.MD{"user": words}
		defer func() { s.md = nil }()
		return next()
	case "retries", "hold-retries":
		return s.several(s.number(words[0]), func() string { return s.rpc(name, new(decision.Extra), true, hold) })
	case "ring":
		return s.rpc(name, &decision.Extra{RPC: hash(xxhash.Sum64String(rest + ":1_0"))}, false, false)
	case "for":
		return s.several(4, func() string { return s.session(name, strings.Split(rest, ",")) })
	case "fails", "hold-for":
		return s.several(s.number(words[0]), func() string { return s.rpc(name, sessionOf(words[1]), false, hold, words[1]) })
	case "ends":
		s.endings(name, words[0], words[1:]...)
		return s.ejected(name)
	case "calls":
		i := 0
		for _, word := range words {
			n, counts := s.repeated(word)
			succeeded, failed, _ := strings.Cut(counts, "/")
			for range n {
				s.endings(name, strconv.Itoa(i), succeeded+"xOK", failed+"xINTERNAL")
				i++
			}
		}
		return ""
	case "ejected":
		return s.ejected(name)
	case "auto-host":
		return s.rpc(name, &decision.Extra{AutoHost: true, Authority: rest}, false, false)
	case "trace":
		var picks []string
		with := rpctrace.With(context.Background(), &rpctrace.Trace{Picked: func(p rpctrace.Pick) {
			picks = append(picks, fmt.Sprintf("%s (%s,%s,%s %d) %s%s", p.Cluster, p.Region, p.Zone, p.SubZone, p.Priority, p.Endpoint, p.Reason))
		}})
		s.rpc(name, &decision.Extra{Trace: rpctrace.FromContext(with)}, false, false)
		return strings.Join(picks, "; ")
	case "labels":
		var calls []string
		s.labels = func(labels map[string]string) {
			var call []string
			for _, key := range slices.Sorted(maps.Keys(labels)) {
				call = append(call, key+"="+labels[key])
			}
			calls = append(calls, strings.Join(call, " "))
		}
		defer func() { s.labels = nil }()
		extra := new(decision.Extra)
		if rest != "" {
			extra = sessionOf(rest)
		}
		return s.rpc(name, extra, false, false) + ": " + strings.Join(calls, "; ")
	case "labels-of":
		return strings.TrimSpace(strings.Join(s.CC.Labels(long(rest)), "; "))
	case "loads":
		return s.reportLoads()
	case "metrics":
		synctest.Wait()
		return strings.Join(slices.Sorted(maps.Keys(s.CC.Meter.Counts(rest))), "; ")
	case "watches":
		h := s.server(rest + ":1")
		return fmt.Sprintf("%q of %d", h.Open(), len(h.Began()))
	case "providers":
		synctest.Wait()
		return fmt.Sprint(s.securities.providers.Load(), " open")
	case "made":
		return fmt.Sprint(s.CC.Made(long(rest)))
	case "look-ups":
		n := s.named(name).lookUps
		s.named(name).lookUps = 0
		return fmt.Sprint(min(n, 5))
	}
	synctest.Wait()
	d, ok := (*s.live.Load())(context.Background(), name)
	if !ok && verb != "subscriptions" {
		return "(no such cluster)"
	}
	switch verb {
	case "subscriptions":
		return strings.TrimPrefix(fmt.Sprint(s.plugged), "map")
	case "why":
		after := fmt.Sprintf("%s %s: %s", d.Phase, d.State, strings.ReplaceAll(livestate.Why(&d), s.T.Name(), "EDS "))
		if d.Notes != "" {
			after += " (" + d.Notes + ")"
		}
		if d.Switching {
			after += " (switching)"
		}
		return after
	case "localities":
		text, err := json.Marshal(d.Priorities)
		xdstest.NoError(s.T, err)
		return strings.ReplaceAll(string(text), `:1"`, `"`)
	case "traffic":
		return fmt.Sprintf("in flight %d", d.Traffic.InFlight)
	case "uses":
		return strings.Join(uses(&d), "; ")
	}
	s.T.Fatalf("unknown step %q", verb)
	return ""
}

// reportLoads returns which of the stores are in use, and their reports: the counts of RPCs by locality and the drops.
func (s *script) reportLoads() string {
	var all []string
	for i, store := range s.stores {
		text := fmt.Sprint(i + 1)
		if store.InUse() {
			text += " in use"
		}
		for _, r := range store.Take(nil) {
			slices.SortFunc(r.Localities, func(a, b *load.LocalityReport) int { return cmp.Compare(a.ID.Zone, b.ID.Zone) })
			for _, l := range r.Localities {
				text += fmt.Sprintf(", %s %s: issued %d, in progress %d, succeeded %d, failed %d",
					r.Key, cmp.Or(l.ID.Zone, "elsewhere"), l.Issued, l.InProgress, l.Succeeded, l.Failed)
			}
			if r.TotalDropped > 0 {
				text += fmt.Sprintf(", %s dropped %d %v", r.Key, r.TotalDropped, r.Dropped)
			}
		}
		all = append(all, text)
	}
	return strings.Join(all, "; ")
}

// repeated splits NxTEXT.
func (s *script) repeated(text string) (int, string) {
	if n, rest, ok := strings.Cut(text, "x"); ok {
		return s.number(n), rest
	}
	return 1, text
}

// endings has RPCs to an endpoint, which sessions may use, end one after the other: with a status of the server's; "lost:" before it says that there was
// no answer; "again" that gRPC picks again, and "unsent" that the client could not send it.
func (s *script) endings(name, endpoint string, endings ...string) {
	s.T.Helper()
	var all []grpcbalancer.DoneInfo
	for _, ending := range endings {
		n, ending := s.repeated(ending)
		ending, lost := strings.CutPrefix(ending, "lost:")
		info := grpcbalancer.DoneInfo{BytesReceived: !lost}
		var code codes.Code
		switch ending {
		case "again":
			info.BytesReceived = false
		case "unsent":
			info = grpcbalancer.DoneInfo{Err: errors.New("marshal")}
		default:
			xdstest.NoError(s.T, code.UnmarshalJSON([]byte(strconv.Quote(ending))))
			info.Err = status.Error(code, "no")
		}
		all = append(all, slices.Repeat([]grpcbalancer.DoneInfo{info}, n)...)
	}
	others := s.held
	s.held = nil
	for range all { // All begin before the first ends, which may have the endpoint ejected.
		if to := s.rpc(name, sessionOf(endpoint), false, true); to != endpoint {
			s.T.Fatalf("an RPC for %s: %s", endpoint, to)
		}
	}
	for i, info := range all {
		s.held[i](info)
	}
	s.held = others
}

// ejected lists the endpoints that are ejected, and what was counted.
func (s *script) ejected(name string) string {
	synctest.Wait()
	d, _ := (*s.live.Load())(context.Background(), name)
	var list, counts []string
	for _, p := range d.Priorities {
		for _, l := range p.Localities {
			for _, e := range l.Endpoints {
				if e.Ejection != nil {
					list = append(list, short(strings.Join(e.Addresses, "+")))
				}
			}
		}
	}
	if s.CC.Meter != nil {
		const prefix = "grpc.lb.outlier_detection."
		for text, n := range s.CC.Meter.Counts(prefix) {
			words := strings.Fields(strings.ReplaceAll(text, prefix, ""))
			words = slices.DeleteFunc(words, func(word string) bool { return strings.HasPrefix(word, "grpc.") })
			counts = append(counts, fmt.Sprint(strings.Join(words, " "), " ", n))
		}
		slices.Sort(counts)
	}
	return strings.TrimSpace(fmt.Sprint(list, " ", strings.Join(counts, "; ")))
}

// uses are the priorities of a cluster, or the clusters under it. Those in use are marked with a star.
func uses(d *inspect.Cluster) (all []string) {
	add := func(name string, use *inspect.Use, why string, state inspect.State, more string) {
		if use.InUse {
			name = "* " + name
		}
		all = append(all, fmt.Sprintf("%s %s (%s, %s%s)", name, strings.ReplaceAll(why, "2000-01-01T", ""), use.Status, state, more))
	}
	why := livestate.Reasons(d) // of one of the two
	for i := range d.Priorities {
		p := &d.Priorities[i]
		add(fmt.Sprint(p.Number), &p.Use, why[i], p.State, "")
		for _, l := range p.Localities {
			for _, e := range l.Endpoints {
				if e.HealthCheck != "" {
					all[i] += fmt.Sprintf(" the health check of %s: %s", short(e.Addresses[0]), e.HealthCheck)
				}
				if e.Ejection != nil {
					all[i] += fmt.Sprintf(" %s is ejected from %s to %s by %s", short(e.Addresses[0]),
						e.Ejection.Since.Format(time.TimeOnly), e.Ejection.Until.Format(time.TimeOnly), e.Ejection.Method)
				}
			}
		}
	}
	for i, m := range d.Members {
		add(m.Cluster.Name, &m.Use, why[i], m.Cluster.State, ", "+string(m.Cluster.Phase))
	}
	return all
}
