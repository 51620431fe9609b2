package load_test

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	orcapb "github.com/cncf/xds/go/xds/data/orca/v3"
	"google.golang.org/grpc/balancer"

	"github.com/dynxds/dynxds/internal/load"
	"github.com/dynxds/dynxds/internal/xdsmsg"
	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/internal/xdstest/golden"
)

// TestScript has what reports say of RPCs. The file in testdata says what the steps are.
func TestScript(t *testing.T) {
	golden.Scripts(t, "testdata/*.txt", 0, func(t testing.TB) func(string) string {
		s := &script{TB: t, clusters: map[string]*load.Cluster{}, localities: map[string]*load.Locality{}}
		s.store = load.NewStore(func() { s.changes = append(s.changes, fmt.Sprint("in use: ", s.store.InUse())) })
		return s.step
	})
}

// script is a Store, with clusters and localities by name.
type script struct {
	testing.TB
	store      *load.Store
	changes    []string
	clusters   map[string]*load.Cluster
	localities map[string]*load.Locality // by "cluster/zone"
}

func (s *script) step(line string) string {
	words := strings.Fields(line)
	switch name := words[1:]; words[0] {
	case "use":
		s.use(name[0], name[1], name[2:])
	case "release":
		s.clusters[name[0]].Release()
	case "begin":
		s.localities[name[0]].Start()
	case "end":
		s.localities[name[0]].End(s.end(name[1:]))
	case "rpcs":
		rpcs(s.localities[name[0]], s.number(name[1]), s.end(name[2:]))
	case "elsewhere":
		cluster, zone, _ := strings.Cut(name[0], "/")
		s.clusters[cluster].SetElsewhere(map[load.LocalityID]uint64{{Region: "eu", Zone: zone}: uint64(s.number(name[1]))})
	case "drops":
		for range s.number(name[1]) {
			s.clusters[name[0]].Drops(strings.Join(name[2:], "")).Count()
		}
	case "busy":
		return fmt.Sprint(s.store.Busy())
	case "report", "unsent":
		time.Sleep(time.Second) // of the bubble
		reports := s.store.Take(func(cluster string) bool { return len(name) == 0 || cluster == name[0] })
		if words[0] == "unsent" {
			s.store.PutBack(reports)
		}
		return cmp.Or(show(reports), "nothing")
	default:
		s.Fatalf("what is %q?", line)
	}
	changes := strings.Join(s.changes, ", ")
	s.changes = nil
	return changes
}

func (s *script) number(text string) int {
	n, err := strconv.Atoi(text)
	xdstest.NoError(s, err)
	return n
}

// use uses a cluster under a name, with zones, and the metrics of backends that are reported.
func (s *script) use(name, cluster string, words []string) {
	var which *load.Metrics
	var ids []load.LocalityID
	for _, word := range words {
		if !strings.HasPrefix(word, "+") {
			ids = append(ids, load.LocalityID{Region: "eu", Zone: word})
			continue
		}
		if which == nil {
			which = &load.Metrics{}
		}
		(*which)[word[1:]] = true
	}
	c := s.store.Use(load.Key{Cluster: cluster, Service: cluster + "-eds"}, which)
	s.clusters[name] = c
	for i, l := range c.Localities(ids) {
		s.localities[name+"/"+ids[i].Zone] = l
	}
}

// end is the end of an RPC: "succeeded", "failed", "void", or what the backend reports.
func (s *script) end(words []string) balancer.DoneInfo {
	how, ok := map[string]balancer.DoneInfo{"succeeded": succeeded, "failed": failed, "void": void}[words[0]]
	if !ok {
		return end(xdsmsg.With(new(orcapb.OrcaLoadReport), "%s", strings.Join(words, " ")))
	}
	return how
}

// show has what is not zero of reports, in the order of clusters and zones.
func show(reports []*load.Report) string {
	var all []string
	slices.SortFunc(reports, func(a, b *load.Report) int { return cmp.Compare(a.Cluster, b.Cluster) })
	for _, r := range reports {
		said := fmt.Sprintf("%s %s in %v", r.Cluster, r.Service, r.Interval)
		if r.TotalDropped > 0 {
			said += fmt.Sprintf(", %d dropped %v", r.TotalDropped, r.Dropped)
		}
		slices.SortFunc(r.Localities, func(a, b *load.LocalityReport) int { return cmp.Compare(a.ID.Zone, b.ID.Zone) })
		for _, l := range r.Localities {
			said += fmt.Sprintf(", %s %v", l.ID.Zone, l.Counts)
			for i, m := range []load.Metric{l.CPU, l.Memory, l.Application} {
				if m.Count > 0 {
					said += fmt.Sprintf(" %s %v", []string{"cpu", "memory", "application"}[i], m)
				}
			}
			if len(l.Named) > 0 {
				said += fmt.Sprintf(" named %v", l.Named)
			}
		}
		all = append(all, said)
	}
	return strings.Join(all, "; ")
}
