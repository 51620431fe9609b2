package outcomes

import "time"

const (
	// Seconds is the length of the history, in buckets of a second.
	Seconds = 60
	// slots is into how many parts the latencies of that time are divided.
	slots = 6
)

// numbers are RPCs, modulo 2^32.
type numbers struct{ started, ended, failed uint32 }

// since returns what has happened between two totals.
func (s numbers) since(before numbers) numbers {
	return numbers{s.started - before.started, s.ended - before.ended, s.failed - before.failed}
}

// history is what was counted until each of the last ticks. What happened between two of them is the difference.
type history struct {
	totals  [Seconds + 1]numbers   // see at
	latency [slots][buckets]uint32 // of every tenth tick
	active  uint64                 // the last tick that has seen an RPC
	// failingSince is when the first failure was seen after a minute without any; zero: there was none in
	// the last minute.
	failingSince time.Time
}

// at returns the totals of a tick. Those of the next tick are a minute older than those of the last one, until it comes.
func (h *history) at(tick uint64) *numbers { return &h.totals[tick%uint64(len(h.totals))] }

// take takes in what was counted since the last tick. The table is locked.
func (c *Counter) take(tick uint64, now time.Time) {
	h := &c.history
	c.base.Store(c.started.Load())
	last, total := *h.at(tick - 1), c.totals()
	*h.at(tick) = total
	if total != last {
		h.active = tick
	}
	switch {
	case total.failed == h.at(tick+1).failed:
		h.failingSince = time.Time{}
	case total.failed != last.failed && h.failingSince.IsZero():
		h.failingSince = now.Add(-second)
	}
	if tick%(Seconds/slots) == 0 {
		for i := range c.latency {
			h.latency[tick/(Seconds/slots)%slots][i] = c.latency[i].Load()
		}
	}
}

// totals returns what was counted since the beginning.
func (c *Counter) totals() numbers {
	ended, failed := c.ended()
	return numbers{uint32(c.started.Load()), uint32(ended), uint32(failed)}
}

// ended returns how many RPCs have ended, and how many of them have failed.
func (c *Counter) ended() (all, failed uint64) {
	for i := range c.codes {
		n := c.codes[i].Load()
		if all += n; failing[i] {
			failed += n
		}
	}
	return all, failed
}

func (c *Counter) inFlight() int64 {
	ended, _ := c.ended()
	return max(0, int64(c.started.Load()-ended))
}

// InFlight calls f for each Key of a target that has RPCs in flight, with their number.
func InFlight(target string, f func(k Key, n int64)) {
	table.mu.Lock()
	counters := table.byTarget[target]
	table.mu.Unlock()
	for _, c := range counters {
		if n := c.inFlight(); n > 0 {
			f(c.key, n)
		}
	}
}

// Report is what was counted for one Key, or for several together. It encodes as JSON, without the Key.
type Report struct {
	Key      `json:"-"`
	Started  uint64 `json:"started"`
	InFlight int64  `json:"in_flight"`
	Retries  uint64 `json:"retries"`
	Hedges   uint64 `json:"hedges"`
	// Codes are the RPCs that have ended, by code as gRPC's metrics have it.
	Codes  map[string]uint64 `json:"codes,omitempty"`
	Minute Minute            `json:"minute"`
	// Last is the last error, of one in each second, nil for none.
	Last *Failure `json:"last_error,omitempty"`
	// FailingSince is when the first failure came after a minute without failures. It is zero if there was none in
	// the last minute.
	FailingSince time.Time `json:"-"`
	// FailedUntil is when the last failure was seen, to a second; zero: there was none in the last minute. EndedSince is how many
	// RPCs have ended since, of Keys that failed until then.
	FailedUntil time.Time `json:"-"`
	EndedSince  uint64    `json:"-"`

	latency [buckets]uint64
}

// Minute is the last minute, or what of it was counted.
type Minute struct {
	Seconds int    `json:"seconds"`
	Started uint64 `json:"started"`
	Ended   uint64 `json:"ended"`
	// Failed is how many of Ended nobody has served, by their codes.
	Failed uint64 `json:"failed"`
	// P50 and P99 are the latencies below which half and 99 % of the RPCs were, without those that have failed, nil if there is
	// none. They are right to a third, which is the width of a bucket.
	P50 *float64 `json:"p50_ms,omitempty"`
	P99 *float64 `json:"p99_ms,omitempty"`
}

// Add adds what became of other RPCs, without their latencies.
func (m *Minute) Add(x *Minute) {
	m.Seconds = max(m.Seconds, x.Seconds)
	m.Started += x.Started
	m.Ended += x.Ended
	m.Failed += x.Failed
}

// Rate is how many RPCs began in a second.
func (m *Minute) Rate() float64 { return float64(m.Started) / float64(max(m.Seconds, 1)) }

// Share is the share of RPCs that have failed, 0 if none has ended.
func (m *Minute) Share() float64 {
	if m.Ended == 0 {
		return 0
	}
	return float64(m.Failed) / float64(m.Ended)
}

// Reports returns what was counted for each Key, in no order.
func Reports() []*Report {
	table.mu.Lock()
	defer table.mu.Unlock()
	all := make([]*Report, 0, table.size)
	measured := int(min(Seconds, ticks.Load()-table.begun))
	for _, v := range table.byKey.Range {
		all = append(all, v.(*Counter).report(measured))
	}
	return all
}

// report is called with the table locked. What has happened since the last tick counts to the minute: those who look
// for the first time see at once what there is.
func (c *Counter) report(measured int) *Report {
	h := &c.history
	r := &Report{
		Key: c.key, Started: c.started.Load(), InFlight: c.inFlight(), Retries: c.retries.Load(), Hedges: c.hedges.Load(),
		Codes: make(map[string]uint64), Last: c.last.Load(), FailingSince: h.failingSince, Minute: Minute{Seconds: measured},
	}
	for i := range c.codes {
		if n := c.codes[i].Load(); n > 0 {
			r.Codes[CodeName(i)] = n
		}
	}
	now, tick := c.totals(), ticks.Load()
	minute := now.since(*h.at(tick + 1))
	r.Minute.Started, r.Minute.Ended, r.Minute.Failed = uint64(minute.started), uint64(minute.ended), uint64(minute.failed)
	switch {
	case now.failed != h.at(tick).failed:
		r.FailedUntil = time.Now()
	case !h.failingSince.IsZero():
		failed := tick // the last tick that has seen a failure
		for h.at(failed-1).failed == now.failed {
			failed--
		}
		r.FailedUntil = table.ticked.Add(-second * time.Duration(tick-failed))
		r.EndedSince = uint64(now.since(*h.at(failed)).ended)
	}
	oldest := &h.latency[(tick/(Seconds/slots)+1)%slots]
	for i := range r.latency {
		r.latency[i] = uint64(c.latency[i].Load() - oldest[i])
	}
	r.setQuantiles()
	return r
}

// Add adds another Report of the same time.
func (r *Report) Add(x *Report) {
	r.Started += x.Started
	r.InFlight += x.InFlight
	r.Retries += x.Retries
	r.Hedges += x.Hedges
	if r.Codes == nil {
		r.Codes = make(map[string]uint64)
	}
	for code, n := range x.Codes {
		r.Codes[code] += n
	}
	r.Minute.Add(&x.Minute)
	if x.Last != nil && (r.Last == nil || x.Last.Time.After(r.Last.Time)) {
		r.Last = x.Last
	}
	if !x.FailingSince.IsZero() && (r.FailingSince.IsZero() || x.FailingSince.Before(r.FailingSince)) {
		r.FailingSince = x.FailingSince
	}
	switch r.FailedUntil.Compare(x.FailedUntil) {
	case -1:
		r.FailedUntil, r.EndedSince = x.FailedUntil, x.EndedSince
	case 0:
		r.EndedSince += x.EndedSince
	}
	for i, n := range x.latency {
		r.latency[i] += n
	}
	r.setQuantiles()
}

func (r *Report) setQuantiles() {
	var all uint64
	for _, n := range r.latency {
		all += n
	}
	if all > 0 {
		r.Minute.P50, r.Minute.P99 = r.quantile(0.5*float64(all)), r.quantile(0.99*float64(all))
	}
}

// quantile returns the latency of the RPC with a rank, in milliseconds.
func (r *Report) quantile(rank float64) *float64 {
	latency := lowerBound(buckets)
	for i, n := range r.latency {
		if rank <= float64(n) && n > 0 {
			low, high := lowerBound(i), lowerBound(i+1)
			latency = low + time.Duration(rank/float64(n)*float64(high-low))
			break
		}
		rank -= float64(n)
	}
	ms := float64(latency.Microseconds()) / 1000
	return &ms
}

// History is what happened in each second of the last minute, the oldest first. It is as long as was counted.
type History struct {
	Started  []uint32 `json:"started"`
	Failures []uint32 `json:"failures"`
}

// Histories returns the History of each of n groups of Keys. group returns the index of a Key's group, -1 if it is in none.
func Histories(n int, group func(Key) int) []History {
	table.mu.Lock()
	defer table.mu.Unlock()
	now := ticks.Load()
	length := min(Seconds, now-table.begun)
	all := make([]History, n)
	for i := range all {
		all[i] = History{make([]uint32, length), make([]uint32, length)}
	}
	for k, v := range table.byKey.Range {
		g := group(k.(Key))
		if g < 0 {
			continue
		}
		h := &v.(*Counter).history
		for i := range length {
			tick := now - length + 1 + i
			of := h.at(tick).since(*h.at(tick - 1))
			all[g].Started[i] += of.started
			all[g].Failures[i] += of.failed
		}
	}
	return all
}
