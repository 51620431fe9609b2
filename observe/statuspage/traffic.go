package statuspage

import (
	"cmp"
	"slices"
	"sync"
	"time"
	"weak"

	"github.com/dynxds/dynxds/balancer"
)

// trafficView is the RPCs of the process to one cluster.
type trafficView struct {
	Cluster string `json:"cluster"`
	Service string `json:"service,omitempty"`
	// Rate is the number of RPCs, retries included, that were given an endpoint in a second;
	// nil until there are two readings.
	Rate     *float64 `json:"rate,omitempty"`
	InFlight int64    `json:"in_flight"`
	Refused  uint64   `json:"refused"`
	Dropped  []count  `json:"dropped,omitempty"`
}

// trafficList is the clusters with the most RPCs first.
type trafficList struct {
	list[trafficView]
	// Rate and InFlight are sums over all clusters.
	Rate     *float64 `json:"rate,omitempty"`
	InFlight int64    `json:"in_flight"`
}

const (
	trafficShown = 25
	dropsShown   = 10
)

func (v *view) traffic() any {
	reading := v.handler.meter.read(v.handler.refresh)
	v.reading = reading
	find := v.query.search("traffic")
	found := make([]*balancer.Traffic, 0, len(reading.traffic))
	view := trafficList{}
	total := 0.0
	for i := range reading.traffic {
		t := &reading.traffic[i]
		view.InFlight += t.InFlight
		total += reading.rates[trafficKey{t.Cluster, t.EDSService}]
		if find.in(t.Cluster, t.EDSService) {
			found = append(found, t)
		}
	}
	if reading.rates != nil {
		view.Rate = &total
	}
	slices.SortStableFunc(found, func(a, b *balancer.Traffic) int {
		return cmp.Or(cmp.Compare(reading.rates[keyOf(b)], reading.rates[keyOf(a)]), cmp.Compare(b.InFlight, a.InFlight))
	})
	view.list = listOf(len(reading.traffic), found, v.query.from("traffic"), trafficShown, reading.view)
	return view
}

func keyOf(t *balancer.Traffic) trafficKey { return trafficKey{t.Cluster, t.EDSService} }

func (r *reading) view(t *balancer.Traffic) trafficView {
	view := trafficView{Cluster: name(t.Cluster), InFlight: t.InFlight, Refused: t.Refused}
	if t.EDSService != t.Cluster {
		view.Service = name(t.EDSService)
	}
	if rate, ok := r.rates[keyOf(t)]; ok {
		view.Rate = &rate
	}
	dropped := make(map[string]int, len(t.Dropped))
	for category, n := range t.Dropped {
		dropped[category] = int(n)
	}
	view.Dropped = counts(dropped)
	view.Dropped = view.Dropped[:min(len(view.Dropped), dropsShown)]
	return view
}

// trafficKey is what is counted together.
type trafficKey struct{ cluster, service string }

// reading is the counts at one moment, and the rates since the reading before.
type reading struct {
	at      time.Time
	traffic []balancer.Traffic
	rates   map[trafficKey]float64 // nil: there was no reading before
}

// meter has the last reading, as long as a viewer or the garbage collector keeps it.
type meter struct {
	mu   sync.Mutex
	last weak.Pointer[reading]
}

// read returns the last reading if it is younger than an interval, or a new one.
func (m *meter) read(interval time.Duration) *reading {
	m.mu.Lock()
	defer m.mu.Unlock()
	old, now := m.last.Value(), time.Now()
	if old != nil && now.Sub(old.at) < interval {
		return old
	}
	r := &reading{at: now, traffic: balancer.TrafficByCluster()}
	if old != nil {
		r.rates = rates(old, r)
	}
	m.last = weak.Make(r)
	return r
}

// rates returns how many RPCs were given an endpoint in a second between two readings. A cluster
// that came into use in between has its RPCs since then.
func rates(old, now *reading) map[trafficKey]float64 {
	before := make(map[trafficKey]uint64, len(old.traffic))
	for i := range old.traffic {
		before[keyOf(&old.traffic[i])] = old.traffic[i].Started
	}
	seconds := now.at.Sub(old.at).Seconds()
	rates := make(map[trafficKey]float64, len(now.traffic))
	for i := range now.traffic {
		t := &now.traffic[i]
		earlier := before[keyOf(t)]
		if earlier > t.Started {
			earlier = 0 // The cluster was removed and added again.
		}
		rates[keyOf(t)] = float64(t.Started-earlier) / seconds
	}
	return rates
}
