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
	// still the preferred variant (xRFC TP2), or still there.
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
	// older is how many responses of the stream for the type the server may have sent before it
	// read the request for the subscription. See Requests.SaysAbsent.
	older uint64
	// Seen is the number of the last response that has something to say of the resource.
	Seen uint64
	// request is the number of the first request of the stream that listed the subscription,
	// or 0, and doubted that of the response whose denial was not believed, or 0. See
	// Requests.Doubts.
	request, doubted uint64
	// listed is how many responses of the stream came for the type before that request.
	listed uint64
	// disputed says that the server has omitted or denied the resource since it sent it, in a
	// response that may have crossed a request. See Requests.KeepsOmitted and Doubts.
	disputed bool
}

func (p *Progress) progress() *Progress { return p }

// Pending reports whether the server was asked for the subscription and has not answered.
func (p *Progress) Pending() bool { return p.State == Sending || p.State == Requested }

// Listed reports whether a request of this stream listed the subscription.
func (p *Progress) Listed() bool { return p.request > 0 }

// Disputed reports whether the resource was kept though the server omitted or denied it, and the
// server has not confirmed either since.
func (p *Progress) Disputed() bool {
	return p.disputed && (p.State == Unsent || p.State == Doubted || p.Pending())
}

// inDoubt reports whether the server has to be asked again.
func (p *Progress) inDoubt() bool { return p.State == Doubted || p.again && p.Pending() }

// beginStream forgets what belongs to the last stream.
func (p *Progress) beginStream() {
	p.again, p.doubted, p.request = false, 0, 0
	if p.Disputed() { // the first full state of the new stream settles it
		p.State = Received
	} else if p.Pending() || p.State == Doubted {
		p.State = Unsent
	}
	p.disputed = false
}

// noteSending notes that a request asks for the subscription, after the response of the given
// number.
func (p *Progress) noteSending(lastResponse uint64) {
	if p.again {
		p.again = false
	} else {
		p.repeats = 0
	}
	p.State, p.asked = Sending, lastResponse
}
