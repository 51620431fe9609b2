package ads

// State says how far a subscription got with its server.
type State uint8

const (
	// Unsent: no request of this stream names the resource.
	Unsent State = iota
	// Sending: a request that names the resource is being written.
	Sending
	// Requested: a request is out, and the resource timer runs.
	Requested
	// Received: the server has sent the resource. A response with the full state that omits
	// it therefore deletes it.
	Received
	// Doubted: the server has sent the resource, and has to be asked again whether it is
	// still the preferred variant (xRFC TP2).
	Doubted
	// Missing: the server deleted the resource, does not have it, or did not send it in time.
	// It may still come.
	Missing
	// Failed: the server sent an error in place of the resource. It does so once, so a
	// response without either changes nothing (xRFC TP3, "Protocol Behavior").
	Failed
	// Dropped: the subscription has ended.
	Dropped
)

// Progress is how far a subscription got with its server. A Subscriber embeds it.
type Progress struct {
	State State
	// again says that the server has to be asked again, and repeats how often it was. asked is
	// the number of the last response before it was asked. See Requests.crossed.
	again   bool
	repeats uint8
	asked   uint64
	// Seen is the number of the last response that has something to say of the resource.
	Seen uint64
	// request is the number of the first request of the stream that listed the subscription,
	// or 0, and doubted that of the response whose denial was not believed, or 0. See
	// Requests.Doubts.
	request, doubted uint64
	// omitted says that a full state has omitted the resource since the server sent it, and may
	// have crossed a request. See Requests.KeepsOmitted.
	omitted bool
}

func (p *Progress) progress() *Progress { return p }

// Pending reports whether the server was asked for the subscription and has not answered.
func (p *Progress) Pending() bool { return p.State == Sending || p.State == Requested }

// Listed reports whether a request of this stream listed the subscription.
func (p *Progress) Listed() bool { return p.request > 0 }

// KeptOmitted reports whether Requests.KeepsOmitted kept the resource, and the server has said
// nothing since.
func (p *Progress) KeptOmitted() bool { return p.omitted && (p.State == Unsent || p.Pending()) }

// inDoubt reports whether the server has to be asked again.
func (p *Progress) inDoubt() bool { return p.State == Doubted || p.again && p.Pending() }

// beginStream forgets what belongs to the last stream.
func (p *Progress) beginStream() {
	p.again, p.doubted, p.request = false, 0, 0
	if p.KeptOmitted() { // the first full state of the new stream settles it
		p.State = Received
	} else if p.Pending() {
		p.State = Unsent
	}
	p.omitted = false
}

// noteSending notes that a request asks for the subscription, after the response of the given
// number.
func (p *Progress) noteSending(heard uint64) {
	if p.again {
		p.again = false
	} else {
		p.repeats, p.doubted = 0, 0
	}
	p.State, p.asked = Sending, heard
}
