package outcomes

import "time"

const (
	// Seconds is the length of the history, in buckets of a second.
	Seconds = 60
	// slots is into how many parts the latencies of that time are divided.
	slots = 6
)

// Second is what happened in one second.
type Second struct {
	Started uint32 `json:"started"`
	Ended   uint32 `json:"ended"`
	Failed  uint32 `json:"failed"`
}

// history is what happened to a Counter in the last minute, as the ticks have seen it.
type history struct {
	started, ended, failed uint64          // at the last tick
	seconds                [Seconds]Second // of tick n at n%Seconds
	latency                [buckets]uint32 // at the last change of slots
	slots                  [slots][buckets]uint32
	active                 uint64 // the last tick that has seen an RPC
	// failingSince is when the first failure was seen after a minute without any; zero: there was none in
	// the last minute. lastFailed is the tick of the last one.
	failingSince time.Time
	lastFailed   uint64
}

// take takes in what was counted since the last tick. The table is locked.
func (c *Counter) take(tick uint64, now time.Time) {
	h := &c.history
	ended, failed := c.ended()
	started := c.started.Load()
	c.base.Store(started)
	s := Second{uint32(started - h.started), uint32(ended - h.ended), uint32(failed - h.failed)}
	h.started, h.ended, h.failed = started, ended, failed
	h.seconds[tick%Seconds] = s
	if s.Started > 0 || s.Ended > 0 {
		h.active = tick
	}
	switch {
	case s.Failed > 0:
		if h.failingSince.IsZero() {
			h.failingSince = now.Add(-second)
		}
		h.lastFailed = tick
	case tick-h.lastFailed >= Seconds:
		h.failingSince = time.Time{}
	}
	if tick%(Seconds/slots) == 0 {
		slot := &h.slots[tick/(Seconds/slots)%slots]
		for i := range slot {
			n := c.latency[i].Load()
			slot[i] = n - h.latency[i]
			h.latency[i] = n
		}
	}
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

// Report is what was counted for one Key, or for several together.
type Report struct {
	Key
	Started         uint64
	InFlight        int64
	Retries, Hedges uint64
	// Codes are the RPCs that have ended, by code as gRPC's metrics have it.
	Codes map[string]uint64
	// Minute sums up the last minute, or what of it was counted: Measured seconds.
	Minute   Sum
	Measured int
	// Last is the last error, of one in each second, nil for none.
	Last *Failure
	// FailingSince is when the first failure came after a minute without failures. It is zero if there was none in
	// the last minute.
	FailingSince time.Time
	// FailedUntil is when the last failure was seen, to a second; zero: there was none in the last minute. EndedSince is how many
	// RPCs have ended since, of Keys that failed until then.
	FailedUntil time.Time
	EndedSince  uint64

	latency [buckets]uint64
}

// Sum is a sum of Seconds.
type Sum struct{ Started, Ended, Failed uint64 }

func (s *Sum) add(one Second) {
	s.Started += uint64(one.Started)
	s.Ended += uint64(one.Ended)
	s.Failed += uint64(one.Failed)
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
		Codes: make(map[string]uint64), Last: c.last.Load(), FailingSince: h.failingSince, Measured: measured,
	}
	for i := range c.codes {
		if n := c.codes[i].Load(); n > 0 {
			r.Codes[codeName(i)] = n
		}
	}
	for _, s := range h.seconds {
		r.Minute.add(s)
	}
	ended, failed := c.ended()
	r.Minute.Started += c.started.Load() - h.started
	r.Minute.Ended += ended - h.ended
	r.Minute.Failed += failed - h.failed
	switch {
	case failed > h.failed:
		r.FailedUntil = time.Now()
	case !h.failingSince.IsZero():
		now := ticks.Load()
		r.FailedUntil = table.ticked.Add(-second * time.Duration(now-h.lastFailed))
		r.EndedSince = ended - h.ended
		for tick := h.lastFailed + 1; tick <= now; tick++ {
			r.EndedSince += uint64(h.seconds[tick%Seconds].Ended)
		}
	}
	for i := range r.latency {
		r.latency[i] = uint64(c.latency[i].Load() - h.latency[i])
		for s := range h.slots {
			if s != int((ticks.Load()/(Seconds/slots)+1)%slots) { // it is about to be replaced
				r.latency[i] += uint64(h.slots[s][i])
			}
		}
	}
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
	r.Minute.Started += x.Minute.Started
	r.Minute.Ended += x.Minute.Ended
	r.Minute.Failed += x.Minute.Failed
	r.Measured = max(r.Measured, x.Measured)
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
}

// Quantile returns the latency below which a share of the RPCs of about the last minute was, without those that have failed. It
// reports false if there is none. It is right to a third, which is the width of a bucket.
func (r *Report) Quantile(share float64) (time.Duration, bool) {
	var all uint64
	for _, n := range r.latency {
		all += n
	}
	if all == 0 {
		return 0, false
	}
	rank := share * float64(all)
	for i, n := range r.latency {
		if rank <= float64(n) && n > 0 {
			low, high := lowerBound(i), lowerBound(i+1)
			return low + time.Duration(rank/float64(n)*float64(high-low)), true
		}
		rank -= float64(n)
	}
	return lowerBound(buckets), true
}

// Histories returns the seconds of the last minute, the oldest first, of each of several groups of Keys. They are as
// long as was counted. groups calls add for each group that a Key is in, by its index.
func Histories(n int, groups func(k Key, add func(group int))) [][]Second {
	table.mu.Lock()
	defer table.mu.Unlock()
	now := ticks.Load()
	length := min(Seconds, now-table.begun)
	all := make([][]Second, n)
	for i := range all {
		all[i] = make([]Second, length)
	}
	for k, v := range table.byKey.Range {
		groups(k.(Key), func(group int) {
			h := &v.(*Counter).history
			for i := range all[group] {
				s, of := &all[group][i], h.seconds[(now-length+1+uint64(i))%Seconds]
				s.Started += of.Started
				s.Ended += of.Ended
				s.Failed += of.Failed
			}
		})
	}
	return all
}
