// Package loopback has servers on 127.0.0.1, for tests whose servers stop
// and listen again, and their addresses.
package loopback

import (
	"fmt"
	"net"
	"syscall"
)

// Address is a TCP address on 127.0.0.1 that stays reserved while no server listens on
// it. Between a stop and a restart the kernel could otherwise give the port to another
// connection, and the restart would fail.
type Address struct {
	text string
	fd   int
	// network has the address if it is not nil.
	network Network
}

// Reserve returns an Address that is reserved until Release is called.
//
// It binds a socket that never listens. Linux lets a second socket bind to the same port
// and listen, as both have SO_REUSEADDR (net.Listen sets it); while none listens,
// connections are refused.
func Reserve() (*Address, error) {
	if n := simulated.Load(); n != nil {
		return &Address{text: (*n).Reserve(), network: *n}, nil
	}
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("reserving a port: socket: %w", err)
	}
	a := &Address{fd: fd}
	if err := a.bind(); err != nil {
		syscall.Close(fd)
		return nil, fmt.Errorf("reserving a port: %w", err)
	}
	return a, nil
}

func (a *Address) bind() error {
	if err := syscall.SetsockoptInt(a.fd, syscall.SOL_SOCKET, syscall.SO_REUSEADDR, 1); err != nil {
		return fmt.Errorf("SO_REUSEADDR: %w", err)
	}
	if err := syscall.Bind(a.fd, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		return fmt.Errorf("bind: %w", err)
	}
	name, err := syscall.Getsockname(a.fd)
	if err != nil {
		return fmt.Errorf("getsockname: %w", err)
	}
	inet, ok := name.(*syscall.SockaddrInet4)
	if !ok {
		return fmt.Errorf("getsockname: got a %T", name)
	}
	a.text = fmt.Sprintf("127.0.0.1:%d", inet.Port)
	return nil
}

// String returns "127.0.0.1:port".
func (a *Address) String() string { return a.text }

// Listen listens on the address.
func (a *Address) Listen() (net.Listener, error) {
	if a.network != nil {
		return a.network.Listen(a.text)
	}
	l, err := net.Listen("tcp", a.text)
	if err != nil {
		return nil, err
	}
	return listener{l.(*net.TCPListener)}, nil
}

// listener is a TCP listener that stops listening when it is closed, even while another process has its socket: a
// process that is being started holds the sockets of its parent until it executes its program.
type listener struct{ *net.TCPListener }

// Close implements net.Listener.
func (l listener) Close() error {
	if raw, err := l.SyscallConn(); err == nil {
		// It fails only if the listener is closed already.
		_ = raw.Control(func(fd uintptr) { _ = syscall.Shutdown(int(fd), syscall.SHUT_RDWR) })
	}
	return l.TCPListener.Close()
}

// Release gives the address up.
func (a *Address) Release() {
	if a.network == nil {
		syscall.Close(a.fd)
	}
}
