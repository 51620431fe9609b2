package ads

// State is what a subscription is at its server. The doubted states have a resource in use that may be gone: the
// server denied or omitted it, or is to say whether it still prefers the variant (xRFC TP2).
type State uint8

const (
	// Unsent: no request of this stream asks for it.
	Unsent State = iota
	// Asked: a request is out, and the resource timer runs once it is written.
	Asked
	// AskAgain: as Asked, and the server has to be asked again.
	AskAgain
	// Received: the server has sent the resource. A full state without it therefore deletes it.
	Received
	// Reask: doubted, and a SotW list has to leave it out, so that the next one asks for it.
	Reask
	// Doubted: the next request asks for it.
	Doubted
	// DoubtedAsked is as Asked, and DoubtedAskAgain as AskAgain.
	DoubtedAsked
	DoubtedAskAgain
	// Silent: the resource timer ran out, and that does not say that there is no resource.
	Silent
	// Missing: there is no resource.
	Missing
	// Failed: the server sent an error in place of the resource. It does so once, so a
	// response without either changes nothing (xRFC TP3, "Protocol Behavior").
	Failed
	// Ended: the subscription has ended.
	Ended
	states // how many there are
)

// Event is what happens to a subscription.
type Event uint8

const (
	// Listed: a request asks for it.
	Listed Event = iota
	// LeftOut: a SotW list leaves it out, so that the next one asks for it.
	LeftOut
	// NotListed: a SotW reply repeats the last list, which is older than the subscription. The server takes what it
	// sent for not subscribed to.
	NotListed
	// Crossed: a SotW response does not have it that may be older than the request.
	Crossed
	// Contested: a lesser variant came that may be for another subscription.
	Contested
	// DeniedForAnother: a denial that may be for another subscription.
	DeniedForAnother
	// Omitted: a full state does not have it.
	Omitted
	// OmittedEarlier: a full state does not have it, and may be that of a list without it.
	OmittedEarlier
	// TimedOut: the resource timer ran out.
	TimedOut
	// WatchedAgain: a watch began that hears nothing from the cache.
	WatchedAgain
	// Reopened: there is a new stream.
	Reopened
	// Sent: the server sent the resource.
	Sent
	// Denied: the server said that it does not exist.
	Denied
	// Errored: the server sent an error in its place.
	Errored
	// DeniedUnwatched: the server denied it while nobody watched it. The next watch may be newer than that.
	DeniedUnwatched
	// Forgotten: what the server has said does not count any more.
	Forgotten
	// Closed: the subscription ended.
	Closed
	events // how many there are
)

// Effect is what the client does about an event.
type Effect uint8

const (
	// Ignore: nothing, and the state stays.
	Ignore Effect = iota
	// Note: the state changes.
	Note
	// Ask: a request is due.
	Ask
	// Tell: the watchers hear that the resource does not exist.
	Tell
)

// rule is what follows from an event in some states.
type rule struct {
	on     Event
	in     []State
	next   State
	effect Effect
}

// table has the rules. Where it has none, the effect is Ignore.
var table = []rule{
	{Listed, []State{Unsent, AskAgain}, Asked, Note},
	{Listed, []State{Reask, Doubted, DoubtedAskAgain}, DoubtedAsked, Note},
	{LeftOut, []State{AskAgain}, Asked, Ask},
	{LeftOut, []State{Reask}, Doubted, Ask},
	{LeftOut, []State{DoubtedAskAgain}, DoubtedAsked, Ask},
	{NotListed, []State{Received}, Doubted, Note},
	{Crossed, []State{Asked, AskAgain}, AskAgain, Ask},
	{Crossed, []State{DoubtedAsked, DoubtedAskAgain}, DoubtedAskAgain, Ask},
	{Contested, []State{Asked, AskAgain, Received, Reask, DoubtedAsked, DoubtedAskAgain}, Reask, Ask},
	{DeniedForAnother, []State{Asked, AskAgain}, AskAgain, Ask},
	{DeniedForAnother, []State{Received, Reask}, Reask, Ask},
	{DeniedForAnother, []State{DoubtedAsked, DoubtedAskAgain}, DoubtedAskAgain, Ask},
	{Omitted, []State{Received, Reask, Doubted, DoubtedAsked, DoubtedAskAgain, Silent}, Missing, Tell},
	{OmittedEarlier, []State{Received}, Doubted, Ask},
	{OmittedEarlier, []State{Silent}, Missing, Tell},
	{TimedOut, []State{Asked, AskAgain}, Silent, Note},
	{TimedOut, []State{DoubtedAsked, DoubtedAskAgain}, Silent, Tell},
	{WatchedAgain, []State{Silent, Missing}, Unsent, Note},
	{Reopened, []State{Asked, AskAgain}, Unsent, Note},
	{Reopened, []State{Reask, Doubted, DoubtedAsked, DoubtedAskAgain}, Received, Note},
	{Sent, anyState, Received, Note},
	{Denied, anyState, Missing, Note},
	{Errored, anyState, Failed, Note},
	{DeniedUnwatched, anyState, Reask, Note},
	{Forgotten, anyState, Unsent, Note},
	{Closed, anyState, Ended, Note},
}

var anyState = []State{Unsent, Asked, AskAgain, Received, Reask, Doubted, DoubtedAsked, DoubtedAskAgain, Silent, Missing, Failed, Ended}

// rules finds the rule by state and event.
var rules = func() (all [states][events]*rule) {
	for i := range table {
		for _, s := range table[i].in {
			all[s][table[i].on] = &table[i]
		}
	}
	return all
}()

// Next returns the state after an event, and what the client does about it.
func Next(s State, e Event) (State, Effect) {
	if r := rules[s][e]; r != nil {
		return r.next, r.effect
	}
	return s, Ignore
}

var stateNames = [states]string{
	"Unsent", "Asked", "AskAgain", "Received", "Reask", "Doubted", "DoubtedAsked", "DoubtedAskAgain", "Silent", "Missing", "Failed", "Ended",
}

// String is the name of the constant.
func (s State) String() string { return stateNames[s] }

// Pending reports whether the server was asked for the subscription and has not answered.
func (s State) Pending() bool {
	return s == Asked || s == AskAgain || s == DoubtedAsked || s == DoubtedAskAgain
}

// IsDue reports whether the next request asks for it. SotW has to leave it out of a list before it asks again.
func (s State) IsDue(incremental bool) bool {
	return s == Unsent || s == Doubted || incremental && (s == Reask || s == AskAgain || s == DoubtedAskAgain)
}
