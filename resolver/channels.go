package resolver

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
)

// Mode says where a channel's configuration comes from.
type Mode int

const (
	// ModeUndecided: nowhere yet. The control plane has not spoken, or what it
	// said is no reason to use DNS.
	ModeUndecided Mode = iota
	// ModeXDS: from the control plane, which accepted the channel's target once.
	// A channel stays in this mode.
	ModeXDS
	// ModeDNS: from DNS. The control plane, if one is configured, goes on being
	// asked.
	ModeDNS
)

// String names the mode as logs do.
func (m Mode) String() string {
	switch m {
	case ModeXDS:
		return "xDS"
	case ModeDNS:
		return "DNS"
	default:
		return "undecided"
	}
}

// ChannelStatus is the state of one channel at one moment.
type ChannelStatus struct {
	// Target is the channel's target as it was dialled.
	Target string
	Mode   Mode
	// Reason is why the channel is in the mode.
	Reason string
	// Since is when it came into the mode.
	Since time.Time
	// DNS is the last look-up of the service config in ModeDNS, nil if there was
	// none.
	DNS *dnsconfig.Result
}

// Channels returns the state of every channel of the schemes "xds" and "dynxds"
// that has been used and is not closed, in the order of first use.
func Channels() []ChannelStatus {
	channels.mu.Lock()
	records := make([]*channelRecord, 0, len(channels.records))
	for key, r := range channels.records {
		if cc := key.Value(); cc != nil && cc.GetState() != connectivity.Shutdown {
			records = append(records, r)
		}
	}
	channels.mu.Unlock()
	slices.SortFunc(records, func(a, b *channelRecord) int { return cmp.Compare(a.number, b.number) })
	all := make([]ChannelStatus, len(records))
	for i, r := range records {
		all[i] = r.read()
	}
	return all
}

// channels holds what has to be remembered of a channel over its idle periods,
// in which it has no resolver, for as long as the channel is in memory.
var channels = struct {
	mu      sync.Mutex
	count   uint64
	records map[weak.Pointer[grpc.ClientConn]]*channelRecord
}{records: map[weak.Pointer[grpc.ClientConn]]*channelRecord{}}

// channelRecord is what is remembered of one channel.
type channelRecord struct {
	number uint64

	mu     sync.Mutex
	status ChannelStatus
}

// recordOf returns the record of a channel, a new one if there is none.
func recordOf(cc *grpc.ClientConn) *channelRecord {
	key := weak.Make(cc)
	channels.mu.Lock()
	defer channels.mu.Unlock()
	r := channels.records[key]
	if r == nil {
		channels.count++
		r = &channelRecord{number: channels.count, status: ChannelStatus{
			Target: cc.Target(), Reason: "the control plane has not answered yet", Since: time.Now()}}
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

func (r *channelRecord) read() ChannelStatus {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := r.status
	if s.Mode != ModeDNS {
		s.DNS = nil
	}
	return s
}

func (r *channelRecord) mode() Mode { return r.read().Mode }

// become puts the channel into a mode. Into DNS and from there it is logged,
// once for each time.
func (r *channelRecord) become(m Mode, reason string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	before := r.status.Mode
	if before == m {
		return
	}
	r.status.Mode, r.status.Reason, r.status.Since = m, reason, time.Now()
	switch {
	case m == ModeDNS:
		logger.Warningf("%s: resolved by DNS: %s", r.status.Target, reason)
	case before == ModeDNS && m == ModeXDS:
		logger.Infof("%s: configured by xDS, no longer by DNS: %s", r.status.Target, reason)
	case before == ModeDNS:
		logger.Warningf("%s: no longer resolved by DNS: %s", r.status.Target, reason)
	}
}

// undecided keeps the last thing that the control plane said.
func (r *channelRecord) undecided(reason string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.status.Mode == ModeUndecided {
		r.status.Reason = reason
	}
}

// lookedUp notes the look-up of a service config.
func (r *channelRecord) lookedUp(result *dnsconfig.Result) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.status.DNS = result
}
