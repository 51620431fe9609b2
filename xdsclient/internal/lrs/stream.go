package lrs

import (
	"context"
	"io"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/mem"

	"github.com/dynxds/dynxds/internal/load"
	"github.com/dynxds/dynxds/xdsclient/internal/transport"
)

const (
	// MinInterval is the shortest interval between two reports, whatever a
	// server asks for. gRPC's C-core has the same.
	MinInterval = time.Second
	// Farewell is how long the end of a client waits for the last report to be
	// sent.
	Farewell = time.Second
)

// stream is one LRS stream. One goroutine writes reports, another reads the
// server's orders.
type stream struct {
	*Reporter
	client, ctx context.Context // that of the client, and that of the stream
	wire        grpc.ClientStream
	// order is the server's last order, and ordered is given with each.
	order   atomic.Pointer[order]
	ordered transport.Signal
	// ended carries the reason for which the stream ended.
	ended chan error
	// reported is when the last report was sent, or the first order was seen.
	reported time.Time
}

// begin introduces the client and waits for the server's first order. It does not
// wait when there is no cluster in use any more. answered says whether there is an order to serve, or was one
// before the error.
func (s *stream) begin() (answered bool, err error) {
	hello, err := encodeHello(s.node)
	if err == nil {
		err = s.send(hello)
	}
	for err == nil && s.Store.InUse() {
		if s.order.Load() != nil {
			s.reported = time.Now()
			return true, nil
		}
		select {
		case <-s.ordered:
		case <-s.wake:
		case err = <-s.ended:
		}
	}
	return err != nil && s.order.Load() != nil, err
}

// read takes the server's orders until the stream ends, not faster than transport.Pace
// allows. One that cannot be understood ends it.
func (s *stream) read() error {
	var pace transport.Pace
	for {
		var message mem.Buffer
		if err := s.wire.RecvMsg(&message); err != nil {
			if err == io.EOF {
				err = transport.ErrNoAnswer
			}
			return err
		}
		size := message.Len()
		o, err := decodeOrder(message.ReadOnlyData())
		message.Free()
		if err != nil {
			return err
		}
		if last := s.order.Swap(o); last == nil || last.String() != o.String() {
			logger.Infof("load reports to xDS management server %s: %v", s.server, o)
		}
		s.ordered.Give()
		pace.Wait(s.ctx, size)
	}
}

// serve reports at the interval until no later report can have anything, or the
// client is closed, which end the stream in good order, or until it ends.
func (s *stream) serve() error {
	for {
		report, closed := true, false
		// It counts from the last report, so that a server that gives one order
		// after the other neither hurries nor delays reports.
		select {
		case <-s.ordered:
			report = false
		case <-time.After(time.Until(s.reported.Add(s.order.Load().interval))):
		case <-s.wake:
			report = !s.Store.InUse()
		case <-s.client.Done():
			closed = true
			s.awaitDisuse()
		case err := <-s.ended:
			return err
		}
		if report {
			more := !closed && s.Store.Busy() // an RPC that ends after the report is in the next
			if err := s.report(); err != nil {
				return err
			}
			if !more {
				return s.leave()
			}
		}
	}
}

// awaitDisuse waits, for half of the Farewell at most, until the channels that are
// being closed have given up their clusters.
func (s *stream) awaitDisuse() {
	patience := time.After(Farewell / 2)
	for s.Store.InUse() {
		select {
		case <-s.wake:
		case <-patience:
			return
		case <-s.ctx.Done():
			return
		}
	}
}

// report sends the load since the last report, in as many messages as it
// takes. Load that could not be sent is put back.
func (s *stream) report() error {
	s.reported = time.Now()
	reports := s.Store.Take(s.order.Load().wants)
	for first := true; first || len(reports) > 0; first = false {
		message, n, err := encodeReports(reports)
		if err == nil {
			err = s.send(message)
		}
		if err != nil {
			s.Store.PutBack(reports)
			return err
		}
		s.noteOmitted(reports[:n])
		reports = reports[n:]
	}
	return nil
}

// noteOmitted logs the metrics for which there was no room.
func (s *stream) noteOmitted(reports []*load.Report) {
	for _, r := range reports {
		for _, l := range r.Localities {
			if l.OmittedMetrics > 0 {
				logger.Warningf("load reports to xDS management server %s: %d values of named metrics of cluster %q are left out, as its backends report more than %d different ones, or names of more than %d bytes",
					s.server, l.OmittedMetrics, r.Cluster, load.MaxNamed, load.MaxName)
			}
		}
	}
}

// send writes a message. The error of a broken stream is the one that reading returns.
func (s *stream) send(message []byte) error {
	err := s.wire.SendMsg(message)
	if err == io.EOF {
		return <-s.ended
	}
	return err
}

// leave ends the stream and waits until the server has read all of it.
func (s *stream) leave() error {
	if err := s.wire.CloseSend(); err != nil {
		return err
	}
	select {
	case <-s.ended:
	case <-time.After(Farewell):
	}
	return nil
}
