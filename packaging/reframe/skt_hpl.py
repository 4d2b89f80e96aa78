"""ReFrame test of skt-hpl: every residual is checked, the fastest test's rate is the performance.

    reframe -c packaging/reframe/skt_hpl.py -r --performance-report
    reframe -c packaging/reframe/skt_hpl.py -r -S skt_hpl.n=40000 -S skt_hpl.num_tasks=128

skt-hpl is in PATH, or comes from the modules that `-S skt_hpl.modules=NAME` names.
"""
import math

import reframe as rfm
import reframe.utility.sanity as sn


def near_square(ranks):
    """The grid P x Q with P <= Q that is nearest to a square."""
    p = next(p for p in range(math.isqrt(ranks), 0, -1) if ranks % p == 0)
    return p, ranks // p


@rfm.simple_test
class skt_hpl(rfm.RunOnlyRegressionTest):
    descr = 'High-Performance Linpack that survives the loss of nodes'
    valid_systems = ['*']
    valid_prog_environs = ['*']
    sourcesdir = None
    executable = 'skt-hpl'
    num_tasks = 2
    tags = {'performance', 'linpack'}

    # Order of the matrix, block sizes to try, and how the run is protected.
    n = variable(int, value=8000)
    nb = variable(str, value='192,256')
    ft = variable(str, value='none')

    reference = {'*': {'rate': (0, None, None, 'Gflop/s'), 'efficiency': (0, None, None, '%')}}

    @run_before('run')
    def set_options(self):
        p, q = near_square(self.num_tasks)
        self.executable_opts = [
            '--n', str(self.n), '--nb', self.nb, '--p', str(p), '--q', str(q), '--ft', self.ft,
        ]

    @sanity_function
    def all_residuals_pass(self):
        tests = len(self.nb.split(','))
        passed = sn.count(sn.findall(r'^\|\|Ax-b\|\|_oo.* PASSED$', self.stdout))
        return sn.all([
            sn.assert_eq(passed, tests, msg='{0} of {1} residuals passed'),
            sn.assert_found(r'^\s+0 tests completed and failed residual checks', self.stdout),
            sn.assert_found(r'^End of Tests\.', self.stdout),
        ])

    @performance_function('Gflop/s')
    def rate(self):
        result = r'^W[RC]\d\S+(?:\s+\d+){4}\s+\S+\s+(\S+)$'
        return sn.max(sn.extractall(result, self.stdout, 1, float))

    @performance_function('%')
    def efficiency(self):
        """The best part of the rate of DGEMM on the same cores."""
        return sn.max(sn.extractall(r'^# efficiency: (\S+) % of', self.stdout, 1, float))
