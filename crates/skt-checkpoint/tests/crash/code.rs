//! Plain codes, which work byte by byte: Cauchy Reed-Solomon over GF(2^8), and XOR as the case of
//! one parity with all coefficients 1.

use skt_checkpoint::checkpoint::code::{Code, Rebuild};

#[derive(Clone, Debug)]
pub struct PlainCode {
    pub xor: bool,
    pub data: usize,
    pub parities: usize,
}

impl PlainCode {
    pub fn new(xor: bool) -> Self {
        Self { xor, data: 0, parities: 0 }
    }
}

const fn mul(mut a: u8, mut b: u8) -> u8 {
    let mut product = 0;
    while b != 0 {
        if b & 1 == 1 {
            product ^= a;
        }
        a = (a << 1) ^ if a & 0x80 != 0 { 0x1d } else { 0 };
        b >>= 1;
    }
    product
}

/// Inverses found by trial; that of 0 is 0.
const INVERSES: [u8; 256] = {
    let mut inverses = [0; 256];
    let mut a = 1;
    while a < 256 {
        let mut b = 1;
        while mul(a as u8, b) != 1 {
            b += 1;
        }
        inverses[a] = b;
        a += 1;
    }
    inverses
};

fn inverse(a: u8) -> u8 {
    assert!(a != 0, "0 has no inverse");
    INVERSES[a as usize]
}

impl Code for PlainCode {
    type Coef = u8;

    fn name(&self) -> String {
        if self.xor { "plain-xor".into() } else { "plain-cauchy".into() }
    }

    fn shaped(&self, data: usize, parities: usize) -> Result<Self, String> {
        if self.xor && parities != 1 {
            return Err("one parity only".into());
        }
        Ok(Self { xor: self.xor, data, parities })
    }

    fn encode_coef(&self, parity: usize, data: usize) -> u8 {
        assert!(parity < self.parities && data < self.data);
        if self.xor { 1 } else { inverse(parity as u8 ^ (128 + data) as u8) }
    }

    fn one(&self) -> u8 {
        1
    }

    fn is_one(&self, coef: u8) -> bool {
        coef == 1
    }

    fn is_zero(&self, coef: u8) -> bool {
        coef == 0
    }

    fn mul(&self, coef: u8, src: &[u8], dst: &mut [u8]) {
        dst.fill(0);
        self.fma(coef, src, dst);
    }

    fn fma(&self, coef: u8, src: &[u8], dst: &mut [u8]) {
        assert_eq!(src.len(), dst.len());
        for (d, &s) in dst.iter_mut().zip(src) {
            *d ^= if coef == 1 { s } else { mul(coef, s) };
        }
    }

    /// Solves `G_RL d_L = p_R - G_RS d_S` by Gauss-Jordan on [G_RL | I].
    fn rebuild_plan(&self, lost_data: &[usize], lost_parity: &[usize]) -> Vec<Rebuild<u8>> {
        assert!(lost_data.len() + lost_parity.len() <= self.parities);
        let size = lost_data.len();
        let rows: Vec<usize> =
            (0..self.parities).filter(|p| !lost_parity.contains(p)).take(size).collect();
        let mut a: Vec<Vec<u8>> = (0..size)
            .map(|r| {
                let left = lost_data.iter().map(|&i| self.encode_coef(rows[r], i));
                left.chain((0..size).map(|c| u8::from(c == r))).collect()
            })
            .collect();
        for col in 0..size {
            let pivot = (col..size).find(|&r| a[r][col] != 0).expect("any square part is regular");
            a.swap(col, pivot);
            let scale = inverse(a[col][col]);
            a[col].iter_mut().for_each(|x| *x = mul(*x, scale));
            let pivot_row = a[col].clone();
            for (r, row) in a.iter_mut().enumerate() {
                let factor = row[col];
                if r != col && factor != 0 {
                    row.iter_mut().zip(&pivot_row).for_each(|(x, &y)| *x ^= mul(factor, y));
                }
            }
        }
        let rebuild = |(l, &block): (usize, &usize)| {
            let mut from_parity = vec![0; self.parities];
            let mut from_data = vec![0; self.data];
            for (r, &p) in rows.iter().enumerate() {
                let scale = a[l][size + r];
                from_parity[p] = scale;
                for i in (0..self.data).filter(|i| !lost_data.contains(i)) {
                    from_data[i] ^= mul(scale, self.encode_coef(p, i));
                }
            }
            Rebuild { block, from_data, from_parity }
        };
        lost_data.iter().enumerate().map(rebuild).collect()
    }
}
