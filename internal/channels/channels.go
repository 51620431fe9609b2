// Package channels keeps the status of every xDS channel of the process: whether its
// configuration comes from the control plane or from DNS, and why. A Source has the
// details.
//
// The resolver writes the records, diagnostics read them. A record outlives the
// channel's idle periods, in which there is no resolver, and is removed with the channel.
package channels

import (
	"cmp"
	"runtime"
	"slices"
	"sync"
	"time"
	"weak"

	"google.golang.org/grpc"
	"google.golang.org/grpc/connectivity"

	"github.com/dynxds/dynxds/dnsconfig"
	"github.com/dynxds/dynxds/internal/boundlog"
	"github.com/dynxds/dynxds/internal/changes"
	"github.com/dynxds/dynxds/internal/inspect"
)

var logger = boundlog.Component("dynxds")

// Mode is the source of a channel's configuration; see dynxds.Mode.
type Mode string

// The values of Mode, as logs name them.
const (
	Undecided Mode = "undecided"
	XDS       Mode = "xDS"
	DNS       Mode = "DNS"
)

// Status is the state of one channel at one moment; see dynxds.ChannelStatus.
type Status struct {
	// Target is the channel's target as it was dialled.
	Target string
	// Mode is the source of its configuration.
	Mode Mode
	// Reason is why the channel is in this mode.
	Reason string
	// Since is when it entered the mode.
	Since time.Time
	// DNS is the last look-up of the service config in mode DNS, nil if there was
	// none. It must not be changed.
	DNS *dnsconfig.Result
}

// All returns the status of every channel that has been used and is not closed, in
// the order of first use.
func All() []Status {
	open := allOpen()
	all := make([]Status, len(open))
	for i, c := range open {
		all[i] = c.record.Status()
	}
	return all
}

// Inspect describes every channel that All has. It asks the Source of each one, and may wait
// for locks of its resolver.
func Inspect() []inspect.Channel {
	open := allOpen()
	all := make([]inspect.Channel, len(open))
	for i, c := range open {
		all[i] = c.inspect()
	}
	return all
}

// openChannel is a channel with its record.
type openChannel struct {
	cc     *grpc.ClientConn
	record *Record
}

func allOpen() []openChannel {
	channels.mu.Lock()
	open := make([]openChannel, 0, len(channels.records))
	for key, r := range channels.records {
		if cc := key.Value(); cc != nil && cc.GetState() != connectivity.Shutdown {
			open = append(open, openChannel{cc, r})
		}
	}
	channels.mu.Unlock()
	slices.SortFunc(open, func(a, b openChannel) int { return cmp.Compare(a.record.number, b.record.number) })
	return open
}

func (c openChannel) inspect() inspect.Channel {
	s := c.record.Status()
	described := inspect.Channel{
		Number: c.record.number, Target: s.Target, Mode: string(s.Mode), Reason: s.Reason, Since: s.Since,
		State: inspect.State(c.cc.GetState().String()),
	}
	switch source := c.record.Source(); {
	case source != nil:
		return described.WithSource(source)
	case described.State == inspect.Idle:
		described.Why = "the channel is idle: it has no resolver and no connections until its next RPC or Connect"
	default:
		described.Why = "the channel has no bootstrap that it can use: " + s.Reason
	}
	return described
}

// channels has the records of the channels that are in memory.
var channels = struct {
	mu      sync.Mutex
	count   uint64
	records map[weak.Pointer[grpc.ClientConn]]*Record
}{records: map[weak.Pointer[grpc.ClientConn]]*Record{}}

// Record is what is remembered of one channel. It is safe for concurrent use.
type Record struct {
	number uint64

	mu     sync.Mutex
	status Status
	source inspect.Source // nil while no xDS resolver runs
}

// RecordOf returns the record of a channel, a new one if there is none.
func RecordOf(cc *grpc.ClientConn) *Record {
	key := weak.Make(cc)
	channels.mu.Lock()
	defer channels.mu.Unlock()
	r := channels.records[key]
	if r == nil {
		channels.count++
		r = &Record{number: channels.count, status: Status{
			Target: cc.Target(), Mode: Undecided, Reason: "the control plane has not answered yet", Since: time.Now()}}
		channels.records[key] = r
		runtime.AddCleanup(cc, forgetChannel, key)
	}
	return r
}

func forgetChannel(key weak.Pointer[grpc.ClientConn]) {
	channels.mu.Lock()
	defer channels.mu.Unlock()
	delete(channels.records, key)
}

// Status returns the status of the channel.
func (r *Record) Status() Status {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := r.status
	if s.Mode != DNS {
		s.DNS = nil
	}
	return s
}

// Mode returns the mode of the channel.
func (r *Record) Mode() Mode { return r.Status().Mode }

// SetMode puts the channel into a mode. Entering and leaving DNS is logged.
func (r *Record) SetMode(m Mode, reason string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	old := r.status.Mode
	if old == m {
		return
	}
	r.status.Mode, r.status.Reason, r.status.Since = m, reason, time.Now()
	changes.Add(changes.Change{Kind: changes.ModeChanged, Time: r.status.Since,
		Target: r.status.Target, From: string(old), To: string(m), Detail: reason})
	switch {
	case m == DNS:
		logger.Warningf("%s: resolved by DNS: %s", r.status.Target, reason)
	case old == DNS && m == XDS:
		logger.Infof("%s: configured by xDS, no longer by DNS: %s", r.status.Target, reason)
	case old == DNS:
		logger.Warningf("%s: no longer resolved by DNS: %s", r.status.Target, reason)
	}
}

// SetReason replaces the reason of a channel that is undecided: the last
// answer of the control plane.
func (r *Record) SetReason(reason string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.status.Mode == Undecided {
		r.status.Reason = reason
	}
}

// SetDNS records the look-up of a service config.
func (r *Record) SetDNS(result *dnsconfig.Result) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.status.DNS = result
}

// Source returns what describes the channel in detail, or nil.
func (r *Record) Source() inspect.Source {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.source
}

// SetSource sets what describes the channel in detail, until the returned function is called.
func (r *Record) SetSource(s inspect.Source) (remove func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.source = s
	return func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		if r.source == s {
			r.source = nil
		}
	}
}
