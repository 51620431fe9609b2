package kubetest

import "syscall"

// endWithParent ends a process with the test that started it, even if that is killed.
func endWithParent() *syscall.SysProcAttr { return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }
